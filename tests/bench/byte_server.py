"""Sends as many bytes as it is asked for: `python -m tests.bench.byte_server`. A request is a number and a newline.

Prints its address, then serves until it is killed; a thread for each connection, one request on each.
"""

import socket
import threading

PIECE = bytes(1 << 20)
LONGEST_REQUEST = 32


def main() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()


def serve(connection: socket.socket) -> None:
    with connection:
        left = int(connection.recv(LONGEST_REQUEST))
        while left:
            left -= connection.send(memoryview(PIECE)[: min(left, len(PIECE))])


if __name__ == "__main__":
    main()
