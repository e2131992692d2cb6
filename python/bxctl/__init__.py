"""bxctl: the owner's command line. Talks to loopd over its socket, and to nothing else."""

VERSION = "0.1.0"
