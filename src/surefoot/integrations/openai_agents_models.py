"""Models of the OpenAI Agents SDK that are not asked in a run that has stopped, and whose answers are recorded."""

# The framework is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownLambdaType=false, reportMissingTypeStubs=false

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelProvider, MultiProvider

from .models import guarded_async, watched

_STEPS_ASIDE = frozenset({"get_response", "stream_response"})


class GuardedModel(Model):
    """A model that is not asked in a run that has stopped, and whose answers have to be recorded."""

    def __init__(self, inner: Model) -> None:
        """`inner` answers."""
        self.inner = inner

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        """As the model answers."""
        return await guarded_async(f"a call of {_named(self.inner)}", lambda: self.inner.get_response(*args, **kwargs))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """As the model answers, event by event."""
        with watched(f"a call of {_named(self.inner)}"):
            async for event in self.inner.stream_response(*args, **kwargs):
                yield event


def _passed_on(name: str) -> Any:
    return property(lambda model: getattr(model.inner, name))


for _name, _ in inspect.getmembers(Model, inspect.isfunction):
    if not _name.startswith("_") and _name not in _STEPS_ASIDE:  # what this SDK's version has besides
        setattr(GuardedModel, _name, _passed_on(_name))


def _named(model: Any) -> str:
    return f"model {getattr(model, 'model', type(model).__name__)}"


class SurefootProvider(ModelProvider):
    """`RunConfig(model_provider=SurefootProvider())`: the models of `inner` (the SDK's own unless given), guarded."""

    def __init__(self, inner: ModelProvider | None = None) -> None:
        """See the class."""
        self.inner = inner or MultiProvider()

    def get_model(self, model_name: str | None) -> Model:
        """That model, guarded."""
        return guarded_model(self.inner.get_model(model_name))


def guarded_model(model: Model) -> Model:
    """A model, guarded once."""
    return model if isinstance(model, GuardedModel) else GuardedModel(model)
