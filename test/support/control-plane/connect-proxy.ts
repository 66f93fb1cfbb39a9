import { createServer } from "node:http";
import { connect } from "node:net";
import { onTestFinished } from "vitest";
import { freePort } from "../machine/programs.ts";

/** An HTTP proxy for CONNECT only (RFC 9110 §9.3.6), which leads every tunnel to one local port. */
export interface ConnectProxy {
  readonly url: string;
  /** Requested targets. */
  readonly requests: string[];
  /** The answer instead of opening a tunnel. */
  refusal: string | undefined;
}

export async function startConnectProxy(target: number): Promise<ConnectProxy> {
  const port = await freePort();
  const proxy: ConnectProxy = { url: `http://127.0.0.1:${port}`, requests: [], refusal: undefined };
  const server = createServer((_request, response) => response.writeHead(405).end());
  server.on("connect", (request, client) => {
    proxy.requests.push(request.url ?? "");
    client.on("error", () => undefined);
    if (proxy.refusal !== undefined) {
      client.end(`HTTP/1.1 ${proxy.refusal}\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    const onward = connect(target, "127.0.0.1", () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      onward.pipe(client).pipe(onward);
    });
    onward.on("error", () => client.destroy()).on("close", () => client.destroy());
    client.on("close", () => onward.destroy());
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return proxy;
}
