"""ML Metadata as a gRPC server: `python mlmd_server.py HOST:PORT FILE`.

KFP's driver and launcher keep in it what a run has done, and find in it what a cache may answer. The server of the
project is a C++ program that no package index has; its wheel for Python holds the same store as a library, with one
function for each method of the service, on serialized messages. This hands every request to that library.
It runs in the environment of locks/kubeflow-backend.txt and imports nothing of this project.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as library
from ml_metadata.proto import metadata_store_pb2, metadata_store_service_pb2

SERVICE = metadata_store_service_pb2.DESCRIPTOR.services_by_name["MetadataStoreService"]
CODES = {code.value[0]: code for code in grpc.StatusCode}
"""The library says how a call ended by the number of a gRPC status."""


def handlers(file: str) -> dict[str, Any]:
    """One for each method that the library has; three of the service it does not have, and KFP calls none of them."""
    connection, options = metadata_store_pb2.ConnectionConfig(), metadata_store_pb2.MigrationOptions()
    connection.sqlite.filename_uri = file
    # The library takes its messages as text of bytes.
    store = library.CreateMetadataStore(connection.SerializeToString(), options.SerializeToString())
    one_at_a_time = threading.Lock()

    def handler(name: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        call = getattr(library, name)

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            with one_at_a_time:
                response, message, code = call(store, request)
            if code:
                context.abort(CODES.get(code, grpc.StatusCode.UNKNOWN), message.decode(errors="replace"))
            return bytes(response)

        return answer

    names = [method.name for method in SERVICE.methods if hasattr(library, method.name)]
    return {name: grpc.unary_unary_rpc_method_handler(handler(name)) for name in names}


def main() -> None:
    address, file = sys.argv[1:]
    server = grpc.server(ThreadPoolExecutor(8))
    service = grpc.method_handlers_generic_handler(SERVICE.full_name, handlers(file))
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(address)
    server.start()
    print(f"serving {SERVICE.full_name} on {address}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
