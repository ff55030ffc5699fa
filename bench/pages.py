"""A provider without limits: every page is rendered before anybody asks for it.

`python -m bench.pages RECORDS [SHARE…]` prints its address, and serves until it is
ended. Below `/points/80`, 80 % of the records differ from those of any other share.
"""

import email.utils
import json
import re
import socket
import sys
import threading

PAGE = 1000
# a tiny request arrives in one piece
LONGEST_REQUEST = 8192
AFTER = re.compile(rb"[?&]after=(-?\d+)")
SHARE = re.compile(rb"GET /points/(\d+)")
TOWNS = ("Kempten", "Lindau", "Füssen", "Immenstadt", "Sonthofen", "Memmingen", "Isny")
COUNTRIES = ("DE", "AT", "CH", "FR", "IT", "CZ", "PL", "NL", "BE", "LU", "DK", "LI")


def record(number, share=0):
    """Return a record; of a hundred, as many as `share` are changed.

    Most changes are of fields that no index has; of one in four changed records, name
    and points change as well.
    """
    found = plain_record(number)
    if number * 37 % 100 < share:
        found["lat"] += share / 1_000_000
        found["updated_at"] = f"2026-11-{number % 18 + 10}T0{share % 10}:00:00Z"
        if number % 4 == 0:
            found["name"] += f" ({share})"
            found["points"] += share
    return found


def plain_record(number):
    return {
        "id": number,
        "name": f"Charging point {number * 7919 % 1_000_003}",
        "town": TOWNS[number * 31 % len(TOWNS)],
        "country": COUNTRIES[number * 17 % len(COUNTRIES)],
        "lat": 47.0 + number * 13 % 70_001 / 10_000,
        "lon": 6.0 + number * 29 % 90_001 / 10_000,
        "points": number * 11 % 40,
        "updated_at": f"2026-0{number % 9 + 1}-1{number % 7}T0{number % 10}:15:30Z",
    }


def answer(body):
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Date: {email.utils.formatdate(usegmt=True)}\r\n\r\n"
    )
    return head.encode() + body


def render(records, share=0):
    """Return the answer after each id with which a page ends."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    answers = {}
    for start in range(0, records, PAGE):
        numbers = range(start, min(start + PAGE, records))
        answers[start - 1] = answer(
            encode([record(at, share) for at in numbers]).encode()
        )
    return answers


def talk(line, shares):
    nothing = answer(b"[]")
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with line:
        while request := line.recv(LONGEST_REQUEST):
            after, share = AFTER.search(request), SHARE.match(request)
            answers = shares[int(share[1]) if share else 0]
            line.sendall(answers.get(int(after[1]) if after else -1, nothing))


def main():
    records, *changed = map(int, sys.argv[1:])
    shares = {share: render(records, share) for share in (0, *changed)}
    with socket.create_server(("127.0.0.1", 0)) as door:
        print(json.dumps({"url": f"http://127.0.0.1:{door.getsockname()[1]}/points"}))
        sys.stdout.flush()
        while True:
            line, _ = door.accept()
            threading.Thread(target=talk, args=(line, shares), daemon=True).start()


if __name__ == "__main__":
    main()
