// A hop that carries connections onwards and knows nothing of them. Arguments: how long each byte is kept, in milliseconds, then
// pairs `<own host:port>=<target host:port>`.
import { connect, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";

const MAX_KEPT_BYTES = 64 * 1024 * 1024;

/** Hands on what is read once it is `delayMs` old. */
function delayed(from: Socket, to: Socket, delayMs: number): void {
  const kept: { readonly due: number; readonly chunk: Buffer | undefined }[] = [];
  let bytes = 0;
  let timer: NodeJS.Timeout | undefined;
  const pass = (): void => {
    timer = undefined;
    const now = performance.now();
    to.cork();
    for (let next = kept[0]; next !== undefined && next.due <= now; next = kept[0]) {
      kept.shift();
      bytes -= next.chunk?.length ?? 0;
      if (next.chunk === undefined) to.end();
      else to.write(next.chunk);
    }
    to.uncork();
    if (bytes + to.writableLength < MAX_KEPT_BYTES) from.resume();
    const [next] = kept;
    if (next !== undefined) timer = setTimeout(pass, Math.max(1, next.due - performance.now()));
  };
  const keep = (chunk: Buffer | undefined): void => {
    kept.push({ due: performance.now() + delayMs, chunk });
    bytes += chunk?.length ?? 0;
    if (bytes + to.writableLength >= MAX_KEPT_BYTES) from.pause();
    timer ??= setTimeout(pass, delayMs);
  };
  from.on("data", keep).on("end", () => keep(undefined));
  to.on("drain", () => from.resume());
}

const [delayText = "0", ...pairs] = process.argv.slice(2);
const delayMs = Number(delayText);
for (const pair of pairs) {
  const [own = "", target = ""] = pair.split("=");
  const [ownHost, ownPort] = own.split(":");
  const [host = "", port] = target.split(":");
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const upstream = connect({ host, port: Number(port), allowHalfOpen: true, noDelay: true });
    client.on("error", () => upstream.destroy());
    upstream.on("error", () => client.destroy());
    if (delayMs > 0) {
      delayed(client, upstream, delayMs);
      delayed(upstream, client, delayMs);
      return;
    }
    client.pipe(upstream);
    upstream.pipe(client);
  });
  server.listen({ host: ownHost, port: Number(ownPort), backlog: 4096 });
}
createInterface({ input: process.stdin }).on("line", () => console.log("ready"));
