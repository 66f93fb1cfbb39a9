// Loaded into the agent before its program: tells whoever asks how late its event loop was since the last question. The transfers that
// the agent starts have its flags but not its environment, so that nothing happens in them.
import { createServer } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";

const path = process.env["HOLDFAST_BENCH_LOOP"];
if (path !== undefined) {
  const delays = monitorEventLoopDelay({ resolution: 1 });
  delays.enable();
  const server = createServer((socket) => {
    const [p50, p99, most] = [delays.percentile(50), delays.percentile(99), delays.max].map((ns) => ns / 1e6);
    delays.reset();
    socket.end(JSON.stringify({ p50, p99, most }));
  });
  server.listen(path).unref();
}
