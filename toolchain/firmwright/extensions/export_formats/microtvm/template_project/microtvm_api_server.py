# SPDX-License-Identifier: Apache-2.0
"""The server of microTVM's project API for projects of Firmwright.

TVM starts this file with the Python that runs TVM; Firmwright must be installed there.
A launch_microtvm_api_server.sh beside it can choose another Python.
"""

from pathlib import Path

from firmwright.extensions.export_formats.microtvm.project_server import main

if __name__ == "__main__":
    main(Path(__file__))
