"""Values go to JSON and come back as the annotation says, exactly, or are refused.

The workflow is always given the value that was read back from its stored form, live and on replay alike, so the two
cannot differ. There is one codec and no fallback: no pickle, no import by a name found in data.
"""

from __future__ import annotations

import math
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, cast

import msgspec

from .errors import UsageError, ValueRefused
from .parameters import REQUIRED, Kind, parameters_of

VALUE_BYTES_MAX = 64 << 20
DEPTH_MAX = 200


def _encode_foreign(value: Any) -> Any:
    kind = cast("Any", type(value))
    if hasattr(kind, "model_dump"):
        return _in_order(value.model_dump(mode="json"), value.model_dump(mode="python"))
    raise TypeError(f"{type(value).__qualname__} is not a kind of value that can be stored")


def _in_order(plain: Any, value: Any) -> Any:
    """The JSON form of a model with what were sets sorted, since a set's order changes from process to process."""
    if isinstance(value, dict) and isinstance(plain, dict):
        pairs = zip(cast("dict[Any, Any]", plain).items(), cast("dict[Any, Any]", value).values(), strict=False)
        return {key: _in_order(item, original) for (key, item), original in pairs}
    if isinstance(value, list | tuple) and isinstance(plain, list):
        pairs = zip(cast("list[Any]", plain), cast("list[Any]", value), strict=False)
        return [_in_order(item, original) for item, original in pairs]
    if isinstance(value, set | frozenset) and isinstance(plain, list):
        return sorted(cast("list[Any]", plain), key=msgspec.json.encode)
    return plain


def _decode_foreign(kind: type, plain: Any) -> Any:
    if kind is object:
        return plain
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(plain)
    raise TypeError(f"{kind.__qualname__} cannot be read back")


_encode = msgspec.json.Encoder(enc_hook=_encode_foreign).encode
_encode_sorted = msgspec.json.Encoder(enc_hook=_encode_foreign, order="sorted").encode
_decode_any = msgspec.json.Decoder().decode


def _field_names(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if hasattr(value, "__dataclass_fields__"):
        from dataclasses import fields  # late: it takes long to load

        return [field.name for field in fields(value)]
    kind = cast("Any", type(value))
    if hasattr(kind, "model_fields"):
        return list(kind.model_fields)
    return None


def difference(before: Any, after: Any, path: str = "$", depth: int = 0) -> tuple[str, str] | None:
    """Where `after` (read back) is not exactly `before`: (path, why), or None.

    An int that an annotation reads back as an equal float is accepted, since the workflow sees the float both times.
    """
    if depth > DEPTH_MAX:
        return path, f"it is nested deeper than {DEPTH_MAX}"
    kind = cast("Any", type(before))
    if kind is str or before is None or kind is bool:
        return None if type(after) is kind and before == after else _differs(before, after, path)
    if kind is dict and type(after) is dict:
        after = cast("dict[str, Any]", after)
        if before.keys() != after.keys():
            return path, "its keys come back changed; keys must be strings, or the annotation must name their type"
        for (key, value), key_back in zip(before.items(), after, strict=True):
            if type(key) is not type(key_back):
                return path, "the type of its keys comes back changed; the annotation must name it"
            back = after[key]
            if type(value) is str and type(back) is str and value == back:
                continue
            if (found := difference(value, back, f"{path}.{key}", depth + 1)) is not None:
                return found
        return None
    if kind in (list, tuple) and type(after) is kind:
        if len(before) != len(cast("list[Any]", after)):
            return path, "its length comes back changed"
        for index, value in enumerate(before):
            if (found := difference(value, after[index], f"{path}[{index}]", depth + 1)) is not None:
                return found
        return None
    if kind is int and type(after) is float and before == after:
        return None
    if kind is not type(after):
        return _differs(before, after, path)
    names = None if kind in (int, float) else _field_names(before)
    if names is not None:
        for name in names:
            found = difference(getattr(before, name), getattr(after, name), f"{path}.{name}", depth + 1)
            if found is not None:
                return found
        return None
    return None if before == after else _differs(before, after, path)


def _differs(before: Any, after: Any, path: str) -> tuple[str, str]:
    if isinstance(before, float) and not math.isfinite(before):
        return path, f"{before!r} has no JSON form"
    was, now = type(before).__qualname__, type(after).__qualname__
    if was == now:
        return path, f"this {was} comes back changed ({before!r} as {after!r})"
    return path, f"a {was} comes back as {now}{_ANNOTATE} (for a result: the return type)"


_ANNOTATE = "; annotate the exact type"


def refuse_inexact(value: Any, what: str) -> None:
    """Refuse what JSON would silently change: NaN, infinities, keys that are not strings, depth."""
    found = _inexact(value, "$", 0)
    if found is not None:
        raise ValueRefused(what, *found)


def _inexact(value: Any, path: str, depth: int) -> tuple[str, str] | None:
    kind = cast("Any", type(value))
    if kind is str or kind is int or value is None or kind is bool:
        return None
    if kind is float:
        return None if math.isfinite(value) else (path, f"{value!r} has no JSON form")
    if depth > DEPTH_MAX:
        return path, f"it is nested deeper than {DEPTH_MAX}"
    if kind is dict or isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            if type(key) is not str and not isinstance(key, str):
                return f"{path}.{key}", f"the key is a {type(key).__qualname__}; keys must be strings"
            scalar = cast("Any", type(item))
            if scalar is str or scalar is int or scalar is bool or item is None:
                continue
            if (found := _inexact(item, f"{path}.{key}", depth + 1)) is not None:
                return found
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(cast("Iterable[Any]", value)):
            if (found := _inexact(item, f"{path}[{index}]", depth + 1)) is not None:
                return found
    elif not isinstance(value, Enum) and (names := _field_names(value)) is not None:
        for name in names:
            if (found := _inexact(getattr(value, name), f"{path}.{name}", depth + 1)) is not None:
                return found
    return None


def encode_canonical(value: Any, what: str) -> bytes:
    """Canonical JSON (sorted keys) of arguments, for digests and requests; raises ValueRefused."""
    refuse_inexact(value, what)
    return _guarded(_encode_sorted, value, what)


def encode_message(value: Any, what: str) -> bytes:
    """JSON of what is sent to code whose annotation says the type: plain values, or one object with named fields."""
    kind = cast("Any", type(value)) if _field_names(value) is not None else Any
    try:
        return Codec(kind, what).settle(value)[0]
    except ValueRefused as refused:
        why = refused.why.partition(_ANNOTATE)[0]
        if why.startswith("it "):  # too large, too deep: no other type would help
            raise
        hint = "send JSON's own types, or one object such as a dataclass, which wait_for(name, type) reads back"
        raise ValueRefused(what, refused.path, f"{why}; {hint}") from None


def _guarded(encoder: Callable[[Any], bytes], value: Any, what: str) -> bytes:
    try:
        content = encoder(value)
    except RecursionError:
        raise ValueRefused(what, "", f"it is nested deeper than {DEPTH_MAX}, or refers to itself") from None
    except UnicodeEncodeError as error:
        raise ValueRefused(what, "", f"a string holds a lone surrogate ({error.reason})") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise ValueRefused(what, "", str(error)) from None
    if len(content) > VALUE_BYTES_MAX:
        raise ValueRefused(what, "", f"it takes {len(content):,} bytes, more than {VALUE_BYTES_MAX:,}")
    return content


class Codec:
    """Encodes values of one annotation and reads them back; `settle` is what the runtime uses."""

    def __init__(self, hint: Any, what: str) -> None:
        """Raises UsageError when values of `hint` cannot be read back."""
        self.what = what
        self._members: list[Codec] = []
        self._adapter: Any = None
        self._decode: Callable[[bytes], Any] = _decode_any
        if hint is Any or isinstance(hint, typing.TypeVar) or _is_absent(hint):
            return
        hint = type(None) if hint is None else hint
        try:
            self._decode = msgspec.json.Decoder(hint, dec_hook=_decode_foreign).decode
            refuse_unreadable(hint)
        except (TypeError, NameError) as error:
            self._fall_back(hint, error)

    def _fall_back(self, hint: Any, error: Exception) -> None:
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            self._members = [Codec(member, self.what) for member in typing.get_args(hint)]
            return
        if "pydantic" in sys.modules:
            try:
                self._adapter = sys.modules["pydantic"].TypeAdapter(hint)
            except Exception as refused:
                error = refused
            else:
                self._decode = self._adapter.validate_json
                return
        raise UsageError(f"{self.what}: values of {hint!r} cannot be read back exactly ({error})") from None

    @property
    def is_union(self) -> bool:
        """True for a union whose JSON does not say which member it is."""
        return bool(self._members)

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """Encode, read back, compare; returns (stored bytes, the value that the workflow sees)."""
        if self._members:
            return self._settle_union(value)
        if self._adapter is not None:
            content = _guarded(self._adapter.dump_json, value, self.what)
        else:
            content = _guarded(_encode, value, self.what)
        try:
            after = self._decode(content)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            refuse_inexact(value, self.what)
            raise ValueRefused(self.what, "", f"it cannot be read back as annotated: {error}") from None
        if (found := difference(value, after)) is not None:
            raise ValueRefused(self.what, *found)
        return content, after

    def _settle_union(self, value: Any) -> tuple[bytes, Any]:
        reasons: list[str] = []
        for index, member in enumerate(self._members):
            try:
                content, after = member.settle(value)
            except ValueRefused as refused:
                reasons.append(refused.why)
            else:
                return b"[%d,%b]" % (index, content), after
        raise ValueRefused(self.what, "", "it is exactly none of the union's members: " + "; ".join(reasons))

    def read(self, content: bytes) -> Any:
        """Read JSON that somebody else wrote; raises UsageError when it does not fit the annotation."""
        if self._members:
            for member in self._members:
                try:
                    return member.read(content)
                except UsageError:
                    continue
            raise UsageError(f"{self.what}: {content[:120]!r} fits no member of the annotated union")
        try:
            return self._decode(content)
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise UsageError(f"{self.what}: {content[:120]!r} does not fit the annotation: {error}") from None

    def recover(self, content: bytes) -> Any:
        """Read an argument back, which is stored canonically and without the union's member that it is.

        Of a union it is the first member that reads exactly this. Raises UsageError when the annotation does not fit.
        """
        if not self._members:
            return self.decode(content)
        for member in self._members:
            try:
                value = member.recover(content)
                if encode_canonical(value, self.what) == content:
                    return value
            except UsageError:
                continue
        raise UsageError(f"{self.what}: the recorded value {content[:120]!r} fits no member of the annotated union")

    def decode(self, content: bytes) -> Any:
        """Read a stored value back; raises UsageError when the annotation no longer fits it."""
        try:
            if self._members:
                index, raw = msgspec.json.decode(content, type=tuple[int, msgspec.Raw])
                return self._members[index].decode(bytes(raw))
            return self._decode(content)
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
            raise UsageError(
                f"{self.what}: the recorded value {content[:120]!r} no longer fits the annotation ({error}); "
                "restore the annotation, or make the new one accept the old value"
            ) from None


def _argument(codec: Codec, content: bytes, bound: dict[str, Any] | None, name: str) -> Any:
    try:
        value = codec.recover(content)
    except UsageError as error:
        if bound is None:
            raise
        why = f"; {error.__context__}" if error.__context__ else ""
        raise ValueRefused(
            codec.what, "", f"{content[:120].decode(errors='replace')} is not as annotated{why}"
        ) from None
    if codec.is_union and bound is not None and (found := difference(bound[name], value)) is not None:
        raise ValueRefused(codec.what, *found)
    return value


def _is_absent(hint: Any) -> bool:
    """True for what `inspect` puts where there is no annotation."""
    inspect = sys.modules.get("inspect")
    return inspect is not None and hint is inspect.Parameter.empty


def refuse_unreadable(hint: Any) -> None:
    """Raises TypeError if some class in the annotation could be written but never read back."""
    import msgspec.inspect

    seen: set[int] = set()
    stack: list[Any] = [msgspec.inspect.type_info(hint)]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, msgspec.inspect.CustomType) and not (
            part.cls is object or hasattr(part.cls, "model_validate")
        ):
            raise TypeError(f"{part.cls.__qualname__} is not a kind of value that can be read back")
        if isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field):
            stack += [getattr(part, name) for name in part.__struct_fields__]
        elif isinstance(part, tuple | list):
            stack += cast("list[Any]", part)


def resolve_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations of a function; one that cannot be resolved (a name local to a function) counts as absent."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return {name: hint for name, hint in function.__annotations__.items() if not isinstance(hint, str)}


_ALWAYS_EXACT = frozenset({str, int, bool, type(None)})


class ArgumentsCodec:
    """Binds, encodes and restores the arguments of one function, by parameter name.

    `skip` leading parameters (`self`, `attempt`) and those named in `ignore` stay out of the record.
    """

    def __init__(self, function: Callable[..., Any], what: str, *, skip: int = 0, ignore: tuple[str, ...] = ()) -> None:
        self.what, self.function = what, function
        self._what_is_encoded = f"the arguments of {what}"
        parameters = parameters_of(function)[skip:]
        self._skip = skip
        self._plain = all(p.kind is Kind.POSITIONAL_OR_KEYWORD for p in parameters)
        self._names = [p.name for p in parameters]
        self._defaults = {p.name: p.default for p in parameters if p.default is not REQUIRED}
        self._kinds = {p.name: p.kind for p in parameters}
        self._ignore = frozenset(ignore)
        if unknown := self._ignore - set(self._names):
            raise UsageError(f"{what}: ignore= names {sorted(unknown)}, which are no parameters of it")
        self._codecs: dict[str, Codec] | None = None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name with defaults filled in; raises the TypeError that a plain call would raise."""
        names = self._names
        if self._plain and not kwargs and len(args) == len(names):
            return dict(zip(names, args, strict=False))
        if self._plain and len(args) <= len(names):
            given = dict(zip(names, args, strict=False)) | kwargs
            filled = self._defaults | given
            if len(given) == len(args) + len(kwargs) and filled.keys() == self._kinds.keys():
                return {name: filled[name] for name in names}
        return self._bind_slowly(args, kwargs)

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        import inspect

        signature = inspect.signature(self.function)
        signature = signature.replace(parameters=list(signature.parameters.values())[self._skip :])
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def ignored_without_default(self) -> list[str]:
        """Ignored parameters that a call from the record alone could not fill."""
        return [name for name in self._names if name in self._ignore and name not in self._defaults]

    def encode(self, bound: dict[str, Any]) -> bytes:
        """Canonical JSON of the bound arguments; raises ValueRefused naming the argument."""
        if self._ignore:
            bound = {name: value for name, value in bound.items() if name not in self._ignore}
        try:
            for value in bound.values():
                if type(value) not in _ALWAYS_EXACT:
                    refuse_inexact(bound, self._what_is_encoded)
                    break
            return _guarded(_encode_sorted, bound, self._what_is_encoded)
        except ValueRefused as refused:
            raise self._name_culprit(bound, refused) from None

    def _name_culprit(self, bound: dict[str, Any], refused: ValueRefused) -> ValueRefused:
        for name, value in bound.items():
            try:
                encode_canonical(value, name)
            except ValueRefused as inner:
                hint = (
                    "" if inner.path else f'; pass what identifies it instead, or leave it out with ignore=("{name}",)'
                )
                return ValueRefused(f"argument {name!r} of {self.what}", inner.path, inner.why + hint)
        return refused

    def restore(self, content: bytes, bound: dict[str, Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) as annotated, from their stored form; ignored parameters are taken from `bound`.

        With `bound`, which they were encoded from just now, one that its annotation does not fit raises ValueRefused.
        """
        codecs = self._resolved()
        live = {name: value for name, value in (bound or {}).items() if name in self._ignore}
        raws = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, kind in self._kinds.items():
            if name in live:
                value = live[name]
            elif name in raws:
                value = _argument(codecs[name], bytes(raws[name]), bound, name)
            else:
                continue
            if kind is Kind.VAR_POSITIONAL:
                args.extend(value)
            elif kind is Kind.VAR_KEYWORD:
                kwargs.update(value)
            elif kind is Kind.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return tuple(args), kwargs

    def _resolved(self) -> dict[str, Codec]:
        if self._codecs is None:
            hints = resolve_hints(self.function)
            self._codecs = {
                name: Codec(
                    Any if kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD) else hints.get(name, Any),
                    f"argument {name!r} of {self.what}",
                )
                for name, kind in self._kinds.items()
            }
        return self._codecs
