import { randomBytes } from "node:crypto";
import { createServer, type TLSSocket } from "node:tls";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { nameCache } from "../../../../../src/overlay/dial/name-cache.ts";
import { dialHop } from "../../../../../src/overlay/mesh/paths/dial-hop.ts";
import { Paths } from "../../../../../src/overlay/mesh/paths/paths.ts";
import type { MeshEvent, PathState } from "../../../../../src/protocol/overlay/mesh.ts";
import { testCertificate, type TestCertificate } from "../../../../support/certificates.ts";
import { advanceUntil } from "../../../../support/advance-until.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { testIdentity } from "../../../../support/overlay/test-gateway.ts";

const SELF = "00000000-0000-4000-8000-000000000001";
const GATEWAY = "00000000-0000-4000-8000-00000000000a";

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const SETTINGS = frame(4, 0, 0);

/** A frame of HTTP/2 (RFC 9113 §4.1). */
function frame(type: number, flags: number, stream: number, payload = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** An authenticated gateway with this behavior; returns its port. */
async function gatewayThat(certificate: TestCertificate, onSocket: (socket: TLSSocket) => void): Promise<number> {
  const sockets = new Set<TLSSocket>();
  const server = createServer(
    { cert: certificate.cert, key: certificate.key, ALPNProtocols: ["h2", "holdfast-h2r"], minVersion: "TLSv1.3" },
    (socket) => {
      sockets.add(socket.on("error", () => undefined));
      onSocket(socket);
    },
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Dials a gateway three times; returns the resulting state of the path. */
async function tried(onSocket: (socket: TLSSocket) => void): Promise<{ state: PathState; events: MeshEvent[] }> {
  const [own, certificate] = await Promise.all([testCertificate({ hosts: [] }), testCertificate({ hosts: [] })]);
  const port = await gatewayThat(certificate, onSocket);
  const clock = new FakeClock();
  const names = nameCache(clock, () => Promise.reject(new Error("no names here")));
  const identity = testIdentity(SELF, own);
  const events: MeshEvent[] = [];
  const paths = new Paths({
    clock,
    random: () => 0.5,
    dial: (target, protocol, signal) => dialHop({ clock, names, identity: () => identity }, target, protocol, signal),
    onStream: (stream) => stream.respond({ ":status": 200 }),
    onChanged: () => undefined,
    onEvent: (event) => void events.push(event),
    onBuckets: () => undefined,
  });
  onTestFinished(() => paths.close());
  paths.apply({
    self: SELF,
    peers: [{ uid: GATEWAY, fqdn: "gateway.example.net", key: testIdentity(GATEWAY, certificate).key }],
    paths: [{ gateway: GATEWAY, id: "", host: "127.0.0.1", port, isDefault: true }],
    grants: [],
    routes: [],
  });
  const isTried = ({ attempts, state }: PathState): boolean => attempts > 3 && state === "down";
  const state = await advanceUntil("it was tried three times", clock, () => paths.states().find(isTried), 200);
  return { state, events };
}

describe("an authenticated gateway that misbehaves", () => {
  const misdeeds: readonly (readonly [string, (socket: TLSSocket) => void])[] = [
    ["says nothing", (socket) => void socket.resume()],
    ["closes at once", (socket) => socket.destroy()],
    ["ends its half at once", (socket) => void socket.end()],
    ["sends noise", (socket) => void socket.write(randomBytes(4096))],
    ["speaks HTTP/1", (socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")],
    [
      "sends a frame that is too large",
      (socket) => void socket.write(Buffer.concat([PREFACE, SETTINGS, frame(0, 0, 1, Buffer.alloc(20_000))])),
    ],
    [
      "resets a stream that never was",
      (socket) => void socket.write(Buffer.concat([PREFACE, SETTINGS, frame(3, 0, 77, Buffer.alloc(4))])),
    ],
    [
      "goes away with an error",
      (socket) =>
        void socket.write(Buffer.concat([PREFACE, SETTINGS, frame(7, 0, 0, Buffer.from("0000000000000002", "hex"))])),
    ],
    [
      "keeps talking but never answers a probe",
      (socket) => {
        socket.resume().write(Buffer.concat([PREFACE, SETTINGS]));
        const talk = setInterval(() => socket.write(frame(8, 0, 0, Buffer.from("00000001", "hex"))), 5);
        socket.on("close", () => clearInterval(talk));
      },
    ],
    [
      "floods with probes of its own",
      (socket) => {
        socket.resume().write(Buffer.concat([PREFACE, SETTINGS]));
        for (let i = 0; i < 2000 && socket.writable; i += 1) socket.write(frame(6, 0, 0, Buffer.alloc(8)));
      },
    ],
  ];
  it.each(misdeeds)("%s: the path stays down and is retried, without further effect", async (_name, misdeed) => {
    const { state, events } = await tried(misdeed);
    expect(state.reason).toMatch(/the gateway may not know this node$/);
    expect(state.carries).toBe(false);
    expect(events).toEqual([]);
  });
});
