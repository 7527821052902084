"""The committed table is what the committed results say, each target is whole, and one small target is really run."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import msgspec
import pytest

from targets import envs, page, results
from targets.bench import Bench
from targets.layout import ROOT, Target, every, load
from targets.results import GREEN, MEANING, NotProved, Result, Row
from targets.shop import BEFORE, Shop, Strike

TARGETS = list(every())
MEASURED = [target for target in TARGETS if target.results.exists()]
ids = [target.name for target in TARGETS]


def test_the_page_is_what_the_results_say() -> None:
    assert page.PAGE.read_text("utf-8") == page.render(), "run: python -m targets page"


@pytest.mark.parametrize("target", TARGETS, ids=ids)
def test_each_target_is_whole(target: Target) -> None:
    assert target.missing() == []
    assert target.title and target.what
    assert target.results.exists() != bool(target.not_run), "either it was measured, or it says why not"


@pytest.mark.parametrize("target", TARGETS, ids=ids)
def test_third_party_packages_have_a_version(target: Target) -> None:
    for file in target.envs.values():
        lines = [line.partition("#")[0].strip() for line in (target.folder / file).read_text().splitlines()]
        named = {line.partition("==")[0].partition("[")[0] for line in lines if "==" in line}
        assert named, f"{file} pins nothing"


@pytest.mark.parametrize("target", MEASURED, ids=[target.name for target in MEASURED])
def test_every_committed_row_proves_its_fault(target: Target) -> None:
    result = results.read(target.results)
    assert result.complaints() == []
    assert result.target == target.name and result.date and result.versions["surefoot"]


@pytest.mark.parametrize("target", MEASURED, ids=[target.name for target in MEASURED])
def test_ours_is_measured_beside_others(target: Target) -> None:
    rows = results.read(target.results).rows
    assert {row.ours for row in rows} == {True, False}
    done_to_ours = {row.row for row in rows if row.ours}
    assert {row.row for row in rows if not row.ours} <= done_to_ours, "a row that ours was spared"


def test_no_target_is_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/surefoot"]


def test_our_own_code_never_imports_what_is_killed() -> None:
    forbidden = ("import skyvern", "from skyvern", "import cua_agent", "from cua_agent")
    for file in (ROOT / "src").glob("**/*.py"):
        assert not any(line.lstrip().startswith(forbidden) for line in file.read_text().splitlines()), file
    for file in (ROOT / "targets" / "skyvern").glob("*.py"):
        assert not any(line.lstrip().startswith(forbidden[:2]) for line in file.read_text().splitlines()), file


# --- the rules of a row: each wrong row must be refused ----------------------------------------------------------

GOOD = Row(row="gap", arm="a", seen="1", verdict="once", good=1, done=1, ends={"-9": 1, "0": 1})


def of(*rows: Row) -> Result:
    return Result(target="t", date="d", command="c", machine="m", versions={"surefoot": "0"}, seconds=1, rows=[*rows])


@pytest.mark.parametrize(
    "wrong",
    [
        {"done": 0},
        {"ends": {"0": 2}},
        {"ends": {"-15": 1, "0": 1}},
        {"fault": "none"},
        {"verdict": "twice"},
        {"good": 0},
        {"verdict": "stuck", "good": 0, "ours": True},
    ],
    ids=str,
)
def test_a_row_that_proves_nothing_is_never_saved(wrong: dict[str, object], tmp_path: Path) -> None:
    results.save(tmp_path / "good.json", of(GOOD))
    with pytest.raises(NotProved):
        results.save(tmp_path / "wrong.json", of(msgspec.structs.replace(GOOD, **wrong)))
    assert not (tmp_path / "wrong.json").exists()


def test_a_row_that_stands_twice_is_never_saved(tmp_path: Path) -> None:
    with pytest.raises(NotProved, match="twice"):
        results.save(tmp_path / "twice.json", of(GOOD, GOOD))


def test_rows_of_other_versions_are_not_mixed() -> None:
    old = msgspec.structs.replace(of(GOOD), versions={"surefoot": "1"})
    with pytest.raises(NotProved, match="other versions"):
        results.merged(old, of(msgspec.structs.replace(GOOD, arm="b")))
    assert [row.arm for row in results.merged(of(GOOD), of(msgspec.structs.replace(GOOD, arm="b"))).rows] == ["a", "b"]


def test_one_row_measured_again_takes_its_place() -> None:
    old = of(GOOD, msgspec.structs.replace(GOOD, row="other"))
    again = of(msgspec.structs.replace(GOOD, seen="2"))
    rows = results.merged(old, again, by_row=True).rows
    assert [(row.row, row.seen) for row in rows] == [("gap", "2"), ("other", "1")]
    assert [row.row for row in results.merged(old, again).rows] == ["gap"], "a whole arm leaves no old row behind"


def test_what_happens_late_is_counted_though_everybody_is_gone(tmp_path: Path) -> None:
    with Shop(tmp_path / "ledger", late=0.2, strikes=[Strike("refund", BEFORE, what="late")]) as shop:
        assert shop.serve("POST", "/do/refund", {}, {}) is None
        shop.wait_for_late()
        assert shop.happened() == {"refund": 1}


def test_a_loss_of_ours_is_printed_with_its_reason() -> None:
    lost = msgspec.structs.replace(GOOD, ours=True, verdict="stuck", good=0, why="the reason")
    target = load(ROOT / "targets" / "two-agents")
    text = "\n".join(page.remarks([(target, of(lost))]))
    assert "stuck. the reason" in text and "no row in which Surefoot is not green" not in text


def test_every_verdict_has_a_meaning() -> None:
    assert set(GREEN) < set(MEANING)


# --- one small target, really run --------------------------------------------------------------------------------


def test_two_agents_and_one_ticket_are_really_run(tmp_path: Path) -> None:
    from targets.__main__ import measure_of

    target = load(ROOT / "targets" / "two-agents")
    wanted = "the first is killed after its refund, the second comes, the first restarts"
    rows = [row for row in measure_of(target)(Bench(target=target, scratch=tmp_path, only=wanted)) if row.row == wanted]
    committed = {(row.arm, row.verdict) for row in results.read(target.results).rows if row.row == wanted}
    assert [complaint for row in rows for complaint in row.complaints()] == []
    assert {(row.arm, row.verdict) for row in rows} == committed
    assert all(row.ends["-9"] == 1 for row in rows)


def test_the_support_agents_figures_are_ordinary_samples_of_the_closed_form() -> None:
    rows = [row for row in results.read(ROOT / "targets" / "support" / "results.json").rows if row.asked]
    assert len(rows) == 5 and all(row.asked == row.ends["-9"] == 1_000 for row in rows)
    assert all(abs(value) < 1 for row in rows for name, value in row.counts.items() if name.endswith("_z"))


def test_targets_may_name_their_modules_alike(tmp_path: Path) -> None:
    from targets.__main__ import forget_modules, measure_of

    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        shutil.copytree(ROOT / "targets" / "two-agents", folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "world_of_it.py").write_text(f"NAME = {name!r}\n")
        (folder / "run.py").write_text("from world_of_it import NAME\ndef measure(bench):\n    return NAME\n")
        target = load(folder)
        found.append(measure_of(target)(Bench(target=target, scratch=tmp_path)))
        forget_modules(target)
    assert found == ["one", "two"]


def test_an_environment_that_cannot_be_made_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs, "ENVS", tmp_path)
    folder = tmp_path / "target"
    shutil.copytree(ROOT / "targets" / "two-agents", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "requirements.txt").write_text("this is no requirement\n")
    with pytest.raises(envs.NotInstalled, match="could not be made"):
        envs.install(load(folder))
    assert not (tmp_path / "target" / "complete").exists()


def test_refused_rows_are_kept_where_git_does_not_look(tmp_path: Path) -> None:
    refused = of(msgspec.structs.replace(GOOD, done=0))
    kept = results.keep_refused(refused, tmp_path / ".envs")
    assert results.read(kept) == refused
