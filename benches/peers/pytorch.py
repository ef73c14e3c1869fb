"""PyTorch's own unscale, check and clip over tensors of the same lengths, timed on request.

Reads one JSON line {"tensors": [...], "device": "cpu"}, answers {"torch": ..., "device": ..., "threads": ...} and then
one line of milliseconds for every line it reads. Ends with its input.
"""

import json
import sys
import time

try:
    import torch
except ImportError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    sys.exit(0)

request = json.loads(sys.stdin.readline())
device = request["device"]
if device == "cuda" and not torch.cuda.is_available():
    print(json.dumps({"error": "no CUDA device"}), flush=True)
    sys.exit(0)

torch.manual_seed(1)
parameters = []
for length in request["tensors"]:
    parameter = torch.zeros(length, device=device)
    parameter.grad = torch.randn(length, device=device).mul_(0.01)
    parameters.append(parameter)
gradients = [p.grad for p in parameters]
norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])).item()


def synchronize():
    if device == "cuda":
        torch.cuda.synchronize()


def step():
    """Doubles the gradients, then clips them to half their norm, so that they stay as they are."""
    found_inf = torch.zeros((), device=device)
    inverse_scale = torch.full((), 2.0, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse_scale)
    torch.nn.utils.clip_grad_norm_(parameters, norm, foreach=True)


step()
synchronize()
name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
print(json.dumps({"torch": torch.__version__, "device": name, "threads": torch.get_num_threads()}), flush=True)
for _ in sys.stdin:
    synchronize()
    start = time.perf_counter()
    step()
    synchronize()
    print((time.perf_counter() - start) * 1e3, flush=True)
