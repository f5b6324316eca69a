"""The two families of errors.

What the *model* can mend is a `ToolError`: it becomes a tool result and the run goes on. What only the developer or the
user can mend is an `OpenSageError` subclass that leaves the run; its message names the fix.
"""

from __future__ import annotations


class OpenSageError(Exception):
    """Base of every error that leaves a run or a command. The message is one line and names the fix."""


class ToolError(OpenSageError):
    """A failure that the model can mend: it is sent back as the result of the call."""


class ConfigError(OpenSageError):
    """A setting, flag or file that the user wrote is wrong."""


class ScriptError(ConfigError):
    """A script file (DESIGN section 8) is malformed or ran past its end."""


class SessionError(OpenSageError):
    """A session cannot be found, read or written."""


class SessionBusy(SessionError):
    """Another process or run is writing this session."""


class ModelError(OpenSageError):
    """The model call failed and the run cannot go on by itself.

    Attributes:
        status: HTTP status, when there was one.
        retryable: whether the same call may succeed later.
        retry_after: seconds the provider asked to wait, when it did.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after


class ContextOverflow(ModelError):
    """The request is larger than the model's window; compaction may mend it."""


class ModelNotFound(ModelError):
    """The model string names nothing that can be loaded."""


class MissingKey(ModelError):
    """The provider refused the call for want of a valid key."""


class LimitReached(OpenSageError):
    """A budget is exhausted. `reason` is the text that ends the run.

    Attributes:
        reason: e.g. "max_turns: 10 of 10 model calls used".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SandboxError(OpenSageError):
    """A sandbox cannot be made or used."""


class SandboxUnavailable(SandboxError):
    """No backend of the wished kind works on this machine."""


class SandboxLost(SandboxError):
    """The running sandbox died under the agent; it is restarted once, then the run stops."""


class MemoryUnavailable(OpenSageError):
    """The graph memory cannot be opened, read or written, or was asked for what it has not."""


class PathRefused(ToolError):
    """A path leaves the workspace, directly, by `..` or through a symlink."""
