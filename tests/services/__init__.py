"""The servers the tests need, each private to one run: Valkey and PostgreSQL.

`with ValkeyServer() as valkey: valkey.url` · `with PostgresCluster() as cluster: cluster.url`
or, for a whole command, `python -m tests.services --valkey --postgres -- pytest ...`.
"""

from tests.services.postgres import PostgresCluster, postgres_binaries
from tests.services.valkey import ValkeyServer

__all__ = ["PostgresCluster", "ValkeyServer", "postgres_binaries"]
