"""The process that evaluates templates: started for the first one, ended with this program or by a limit."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clusterctl.interpreter import python_command, python_environment

WORKER = Path(__file__).with_name("template_worker.py")
CPU_LIMIT_S = 2  # an honest one takes a thousandth
# For a machine that has no CPU time to give.
TIME_LIMIT_S = 60.0
EXIT_LIMIT_S = 5.0  # of a process that has closed its output
MAX_ANSWER_BYTES = 16 << 20
# As deep as YAML may be.
MAX_DEPTH = 64
TOO_DEEP = f"its value is nested more than {MAX_DEPTH} deep"
LENGTH = struct.Struct("!I")
CHUNK_BYTES = 1 << 16
# Of the whole inventory, the same for all its hosts: sent once.
SHARED = ("groups", "hostvars")
MAX_SHARED = 8
NOT_SET = object()
TOO_LONG = "it takes too long"


class TemplateFailedError(Exception):
    """Why a template cannot be evaluated."""


class TemplateProcess:
    """Evaluates one template at a time, for many threads. One that took too long is not tried again."""

    def __init__(self, cpu_limit_s: int = CPU_LIMIT_S) -> None:
        self._cpu_limit_s = cpu_limit_s
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._shared: dict[int, Any] = {}
        self._too_long: set[str] = set()
        self._depth, self._deadline = 0, 0.0

    def evaluate(self, text: str, look_up: Callable[[str], Any], context: Mapping[str, Any]) -> Any:
        """The template's value. Names are those of ``context``, else what ``look_up`` returns, or NOT_SET.

        Raises TemplateFailedError, and what ``look_up`` raises, which may evaluate templates itself.
        """
        with self._lock:
            if text in self._too_long:
                raise TemplateFailedError(TOO_LONG)
            if self._depth == 0:
                self._start()
                self._deadline = time.monotonic() + TIME_LIMIT_S
            self._depth += 1
            try:
                return self._conversation(text, look_up, context)
            except (OSError, ValueError, EOFError, TimeoutError) as error:
                because = self._why(error)
                self.close()
                if because == TOO_LONG:
                    self._too_long.add(text)
                raise TemplateFailedError(because) from error
            except KeyboardInterrupt:
                self.close()
                raise
            finally:
                self._depth -= 1

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        self._shared.clear()
        if process is not None:
            process.kill()
            process.communicate()

    def _why(self, error: Exception) -> str:
        """Why there was no answer: a limit, or how the process ended."""
        if isinstance(error, TimeoutError):
            return TOO_LONG
        if isinstance(error, ValueError):
            return str(error)
        try:
            code = self._process.wait(EXIT_LIMIT_S) if self._process else None
        except subprocess.TimeoutExpired:
            code = None
        if code == -signal.SIGXCPU:
            return TOO_LONG
        if code is None:
            return f"no answer came: {error}"
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"the process that evaluates it ended {how}"

    def _conversation(self, text: str, look_up: Callable[[str], Any], context: Mapping[str, Any]) -> Any:
        self._send({"evaluate": text})
        while "look_up" in (frame := self._receive()):
            name = frame["look_up"]
            if name in SHARED and name in context:
                self._send_shared(context[name])
                continue
            try:
                value = context[name] if name in context else look_up(name)
            except BaseException:
                self._abort()
                raise
            self._send({"missing": True} if value is NOT_SET else {"value": value})
        if "value" not in frame:
            raise TemplateFailedError(str(frame.get("error")))
        return frame["value"]

    def _abort(self) -> None:
        """Have the template unwind that waits for a name, unless the process has ended by it."""
        if self._process is not None:
            self._send({"abort": True})
            self._receive()

    def _send_shared(self, value: Any) -> None:
        if id(value) in self._shared:
            self._send({"shared": id(value)})
            return
        forget = len(self._shared) >= MAX_SHARED
        if forget:
            self._shared.clear()
        self._shared[id(value)] = value  # so that no other value has its id
        self._send({"value": value, "share": id(value), "forget": forget})

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        try:
            self._process = subprocess.Popen(
                python_command(str(WORKER), str(self._cpu_limit_s)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is ours to answer
                env=python_environment(),
                cwd="/",
            )
        except OSError as error:
            raise TemplateFailedError(f"the process for it does not start: {error.strerror}") from error

    def _send(self, frame: Mapping[str, Any]) -> None:
        content = json.dumps(frame, default=str).encode()
        view = memoryview(LENGTH.pack(len(content)) + content)
        while view:
            view = view[os.write(self._pipe("stdin"), view) :]

    def _receive(self) -> dict[str, Any]:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        if length > MAX_ANSWER_BYTES:
            raise ValueError(f"its value has more than {MAX_ANSWER_BYTES} bytes")
        try:
            frame: dict[str, Any] = json.loads(self._read(length))
        except RecursionError:
            raise ValueError(TOO_DEEP) from None
        if _is_deep(frame):
            raise ValueError(TOO_DEEP)
        return frame

    def _read(self, size: int) -> bytes:
        content = b""
        pipe = self._pipe("stdout")
        while len(content) < size:
            if not select.select([pipe], [], [], max(0.0, self._deadline - time.monotonic()))[0]:
                raise TimeoutError
            piece = os.read(pipe, min(CHUNK_BYTES, size - len(content)))
            if not piece:
                raise EOFError
            content += piece
        return content

    def _pipe(self, name: str) -> int:
        if self._process is None:
            raise EOFError
        number: int = getattr(self._process, name).fileno()
        return number


def _is_deep(value: Any) -> bool:
    """Whether lists and mappings are nested too deep for who walks through them."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


PROCESS = TemplateProcess()
atexit.register(PROCESS.close)
