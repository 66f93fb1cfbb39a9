import { createServer as createTlsServer } from "node:https";
import { createServer as createTcpServer, type Server, type Socket } from "node:net";
import { createServer as createGatewayServer } from "node:tls";
import type { RequestListener } from "node:http";
import { onTestFinished } from "vitest";
import type { CheckTools } from "../../../../src/cli/netcheck/tools.ts";
import type { Finding } from "../../../../src/cli/netcheck/result.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import type { Exec, ExecResult } from "../../../../src/host/process/exec.ts";
import { P256PublicKey, thumbprint } from "../../../../src/protocol/values/keys.ts";
import { testCertificate, type TestCertificate } from "../../../support/certificates.ts";

/** A program whose answer depends on its arguments. */
export function scriptedExec(answer: (args: readonly string[]) => number | Error): Exec & { readonly runs: string[] } {
  const runs: string[] = [];
  return {
    runs,
    run(file, args) {
      runs.push([file, ...args].join(" "));
      const exit = answer(args);
      if (exit instanceof Error) return Promise.reject(exit);
      const result: ExecResult = { exitCode: exit, signal: undefined, stdout: "", stderr: "", truncated: false };
      return Promise.resolve(result);
    },
    spawn: () => {
      throw new Error("not asked for");
    },
  };
}

/** Tools over this machine; names below `.test` resolve to it, and others to nothing. */
export function someTools(changes: Partial<CheckTools> = {}): CheckTools {
  return {
    clock: systemClock(),
    exec: scriptedExec(() => 0),
    resolve: (host) => {
      if (/^[\d.:]+$/.test(host)) return Promise.resolve([host]);
      if (host.endsWith(".test")) return Promise.resolve(["127.0.0.1"]);
      return Promise.reject(Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), { code: "ENOTFOUND" }));
    },
    timeoutMs: 30_000,
    signal: new AbortController().signal,
    ...changes,
  };
}

/** Returns the findings by their check. */
export function byCheck(findings: readonly Finding[]): Record<string, Omit<Finding, "check">> {
  return Object.fromEntries(findings.map(({ check, ...rest }) => [check, rest]));
}

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

/** A gateway up to its first handshake; returns its port and the thumbprint of its key. */
export async function startGateway(): Promise<{ readonly port: number; readonly key: string }> {
  const certificate = await testCertificate({ hosts: [] });
  const { cert, key, parsed } = certificate;
  const options = { cert, key, minVersion: "TLSv1.3", requestCert: true, rejectUnauthorized: false } as const;
  const server = createGatewayServer({ ...options, ALPNProtocols: ["h2", "holdfast-h2r"] }, (socket) =>
    socket.destroy(),
  );
  server.on("tlsClientError", () => undefined);
  const jwk = await parsed.publicKey.export();
  const exported = await crypto.subtle.exportKey("jwk", jwk);
  return { port: await listen(server), key: await thumbprint(P256PublicKey.parse(exported)) };
}

/** An HTTPS server with a key of its own. */
export async function startHttps(
  answer: RequestListener,
): Promise<{ readonly port: number; readonly certificate: TestCertificate }> {
  const certificate = await testCertificate({ hosts: ["cp.test"] });
  const server = createTlsServer({ cert: certificate.cert, key: certificate.key }, answer);
  server.on("tlsClientError", () => undefined);
  return { port: await listen(server), certificate };
}

/** A TCP server with this reaction to connections. */
export function startTcp(onConnection: (socket: Socket) => void): Promise<number> {
  return listen(createTcpServer(onConnection));
}
