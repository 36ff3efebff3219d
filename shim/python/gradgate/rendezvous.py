"""A store such as torch's, as gradgate.h's: the handshake and the naming of missing ranks go through it. No torch."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from . import _abi

if TYPE_CHECKING:
    from collections.abc import Callable


class StoreLike(Protocol):
    """torch.distributed.Store's part that is used. `wait` raises when its time is over."""

    def set(self, key: str, value: Any, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def wait(self, keys: list[str], timeout: timedelta, /) -> None: ...
    def check(self, keys: list[str], /) -> bool: ...


_A_LOOK_NS = 10_000_000  # a deadline this short asks whether the key is there now

# torch's errors of a connection that is gone, by name since there may be no torch.
_BROKEN = frozenset({"DistNetworkError", "ConnectionError", "ConnectionResetError", "BrokenPipeError"})


class StoreBridge:
    """Owns the gg_store, which lives as long as it does. No exception crosses: reraise() raises what must not be lost, such as
    KeyboardInterrupt."""

    def __init__(self, store: StoreLike) -> None:
        self._store = store
        self._interrupt: BaseException | None = None
        self._gone = False
        self._callbacks = _abi.StoreCallbacks(set=_abi.StoreSet(self._set), get=_abi.StoreGet(self._get))
        self._library = _abi.library()
        out = _abi.Pointer()
        status = self._library.gg_store_create(self._callbacks, out, None)
        assert status == _abi.OK
        self.handle = out.value

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.gg_store_destroy(self.handle)

    def reraise(self) -> None:
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            raise interrupt

    def _guarded(self, call: Callable[[], None], otherwise: int) -> int:
        if self._gone:  # torch logs a stack for each call on a connection that is gone
            return _abi.UNAVAILABLE
        try:
            call()
        except Exception as error:
            self._gone = type(error).__name__ in _BROKEN
            return _abi.UNAVAILABLE if self._gone else otherwise
        except BaseException as interrupt:
            self._interrupt = interrupt
            return _abi.UNAVAILABLE
        return _abi.OK

    def _set(self, _user: object, key: bytes, value: int | None, value_bytes: int, _deadline_ns: int) -> int:
        data = _abi.string_at(value, value_bytes) if value and value_bytes else b""
        return self._guarded(lambda: self._store.set(key.decode(), data), _abi.UNAVAILABLE)

    def _get(self, _user: object, key: bytes, buffer: int, capacity: int, value_bytes: Any, deadline_ns: int) -> int:
        def read() -> None:
            name = key.decode()
            # Stores count in milliseconds, and take 0 for their own default. torch logs each wait that ends without the key.
            if deadline_ns <= _A_LOOK_NS and not self._store.check([name]):
                raise TimeoutError(name)
            self._store.wait([name], timedelta(milliseconds=max(1, -(-deadline_ns // 1_000_000))))
            data = bytes(self._store.get(name))
            _abi.memmove(buffer, data, min(len(data), capacity))
            value_bytes[0] = len(data)

        return self._guarded(read, _abi.NOT_FOUND)
