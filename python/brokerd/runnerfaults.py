"""Why no container could be started: each with what the owner can do about it. Nothing ran."""

from bxcore.errors import UpstreamError


class RunnerUnavailable(UpstreamError):
    """No tool can run now. The call is denied; it is never run anywhere else."""

    code = "runner_unavailable"


class PodmanAway(RunnerUnavailable):
    """Podman's service is not there, or went away in the middle of an answer."""

    code = "podman_away"


class PodmanSlow(RunnerUnavailable):
    """Podman's service took the request and did not answer in time."""

    code = "podman_slow"


class PodmanRefused(RunnerUnavailable):
    """Podman's service answered that it cannot do it."""

    code = "podman_refused"


class PodmanForbidden(PodmanRefused):
    """Podman's service was itself refused something: its user has no access to it."""


class ImageMissing(RunnerUnavailable):
    """The tool image is not loaded, or nobody wrote down which one it is."""

    code = "image_missing"


class NotAsAsked(RunnerUnavailable):
    """Podman made another container than it was asked for, so it was not started."""

    code = "container_not_as_asked"


class Unenforced(RunnerUnavailable):
    """The probe got out of a container further than any tool may."""

    code = "isolation_missing"


class NotAsApproved(RunnerUnavailable):
    """What would run is not what the owner said yes to any more, so it does not."""

    code = "not_as_approved"
