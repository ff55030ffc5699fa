"""Find or install the servers that the tests need, before any test waits for them."""

import os
import sys

from tests.services.find import (
    POSTGRES_URL,
    RABBIT_URL,
    REDIS_URL,
    ServerMissing,
    provide_chromium,
    provide_nginx,
    provide_postgres,
    provide_prometheus,
    provide_rabbit,
    provide_redis,
)


def main() -> None:
    if not os.environ.get(POSTGRES_URL):
        provide_postgres()
    if not os.environ.get(REDIS_URL):
        provide_redis()
    if not os.environ.get(RABBIT_URL):
        provide_rabbit()
    provide_nginx()
    provide_chromium()
    provide_prometheus()


if __name__ == "__main__":
    try:
        main()
    except ServerMissing as missing:
        sys.exit(str(missing))
