"""The options that the address of a server may have."""

# what libpq reads; asking it would load the driver before it is needed
POSTGRES_OPTIONS = frozenset(
    {
        "channel_binding",
        "connect_timeout",
        "dbname",
        "gssdelegation",
        "gssencmode",
        "gsslib",
        "host",
        "hostaddr",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "krbsrvname",
        "load_balance_hosts",
        "max_protocol_version",
        "min_protocol_version",
        "oauth_client_id",
        "oauth_client_secret",
        "oauth_issuer",
        "oauth_scope",
        "passfile",
        "password",
        "port",
        "require_auth",
        "requirepeer",
        "scram_client_key",
        "scram_server_key",
        "service",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslcert",
        "sslcertmode",
        "sslcompression",
        "sslcrl",
        "sslcrldir",
        "sslkey",
        "sslkeylogfile",
        "sslmode",
        "sslnegotiation",
        "sslpassword",
        "sslrootcert",
        "sslsni",
        "target_session_attrs",
        "tcp_user_timeout",
        "user",
    }
)
SET_BY_US = "is set by Penstock itself; remove it"
REFUSED_OPTIONS = {
    "application_name": SET_BY_US,
    "client_encoding": SET_BY_US,
    "fallback_application_name": SET_BY_US,
    "options": f"{SET_BY_US}, and set it for the role: alter role … set …",
    "replication": "opens no session that can import; remove it",
    "ssl": "is another driver's; write sslmode=require",
}

TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "ssl_password",
)
REDIS_OPTIONS = {"redis": (), "rediss": TLS_OPTIONS, "unix": ("db",)}
