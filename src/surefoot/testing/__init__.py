"""What ships for tests: a store contract suite, a clock turned by hand, crashes at any command, a receiver that errs.

Nothing here is imported by the rest of Surefoot, and nothing here asks an agent what it did: effects are counted in the
receiver's ledger.
"""
