import { once } from "node:events";
import { connect, type AddressInfo } from "node:net";
import { createServer } from "node:tls";
import { onTestFinished } from "vitest";
import type { TestCertificate } from "../certificates.ts";

/** Terminates TLS before a plain server of this machine, and passes the bytes on. */
export interface TlsFront {
  readonly port: number;
  /** The server names of clients; undefined for one without SNI. */
  readonly requested: readonly (string | undefined)[];
  /** Returns the number of connections passed to the server. */
  readonly passed: () => number;
}

/** Starts one on 127.0.0.1, for the running test. */
export async function startTlsFront({ cert, key }: TestCertificate, target: number): Promise<TlsFront> {
  const requested: (string | undefined)[] = [];
  let passed = 0;
  const server = createServer({ cert, key, ALPNProtocols: ["http/1.1"] }, (client) => {
    requested.push(typeof client.servername === "string" ? client.servername : undefined);
    const onward = connect(target, "127.0.0.1");
    onward.pipe(client).pipe(onward);
    // A client may send its refusal of the certificate only after its handshake has ended.
    client.once("data", () => (passed += 1));
    client.on("error", () => undefined).on("close", () => onward.destroy());
    onward.on("error", () => undefined).on("close", () => client.destroy());
    onTestFinished(() => void client.destroy());
  });
  server.on("tlsClientError", () => undefined).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, requested, passed: () => passed };
}
