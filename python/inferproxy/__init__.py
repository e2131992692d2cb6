"""inferproxy: bytes between loopd and the model server, unread. Standard library only."""
