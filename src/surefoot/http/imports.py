"""Changes to modules when they are imported, so that `install()` imports nothing and nothing has to come first."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Change = Callable[[ModuleType], None]


class _Loader(Loader):
    """Loads with the module's own loader, then changes it."""

    def __init__(self, own: Any, change: Change) -> None:
        self._own, self._change = own, change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._change(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class _Finder(MetaPathFinder):
    """Finds the modules that are to be changed, once each, with the finders behind it."""

    def __init__(self) -> None:
        self.changes: dict[str, Change] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        change = self.changes.pop(fullname, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(fullname) if path is None else _spec_beside(self, fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, change)
        return spec


def _spec_beside(finder: MetaPathFinder, fullname: str, path: Sequence[str]) -> ModuleSpec | None:
    for other in sys.meta_path:
        find: Any = getattr(other, "find_spec", None)
        spec = find(fullname, path, None) if other is not finder and find is not None else None
        if spec is not None:
            return spec
    return None


_finder = _Finder()


def on_import(name: str, change: Change) -> None:
    """Change the module now if it is there, else as soon as it is imported."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
        return
    _finder.changes[name] = change
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
