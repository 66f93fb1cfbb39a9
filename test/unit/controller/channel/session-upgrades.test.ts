import { connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { freePort } from "../../../support/free-port.ts";
import { RawSocket, until } from "../../../support/control-plane/node-client.ts";
import { clockWith, runController } from "../../../support/control-plane/running-controller.ts";
import { startStranger } from "../../../support/control-plane/stranger.ts";

/** Asks for an upgrade that is refused, and never closes its own side. */
function askAmiss(port: number): { readonly socket: Socket; readonly heard: () => string } {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  onTestFinished(() => void socket.destroy());
  let heard = "";
  socket.on("data", (chunk) => (heard += chunk.toString())).on("error", () => undefined);
  socket.write("GET /nope HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  return { socket, heard: () => heard };
}

test("a refused upgrade is answered and its socket let go, though the other side keeps its own open", async () => {
  const controller = await runController();
  const { socket, heard } = askAmiss(Number(new URL(controller.url).port));
  await until(() => heard().includes("\r\n\r\n"));
  expect(heard()).toMatch(/^HTTP\/1\.1 404 /);
  // Only a socket that is gone resets what is still sent to it.
  await until(() => {
    if (!socket.destroyed) socket.write("x");
    return socket.destroyed;
  }, "reset");
});

test("no compression is accepted, also when it is offered", async () => {
  const controller = await runController();
  const raw = new RawSocket(controller.url, { perMessageDeflate: true });
  await raw.challenge();
  expect(raw.socket.extensions).toBe("");
});

const PIN = "A".repeat(43);

test("17 nodes behind a front end that hides them are all let in", async () => {
  const port = await freePort();
  await runController({ publicUrl: "https://cp.example", frontPins: [PIN], listen: `127.0.0.1:${port}` });
  const heads = await Promise.all(Array.from({ length: 17 }, () => startStranger(port, "127.0.9.1")));
  expect(heads.filter(({ head }) => head.startsWith("HTTP/1.1 101"))).toHaveLength(17);
});

test("behind a front end that names them, each client has 16 sockets, of IPv6 each /64", async () => {
  const front = { publicUrl: "https://cp.example", frontPins: [PIN], trustedProxies: ["127.0.9.1"] };
  const port = await freePort();
  await runController({ ...front, listen: `127.0.0.1:${port}` });
  const from = (client: string) => startStranger(port, "127.0.9.1", [`x-forwarded-for: 203.0.113.7, ${client}`]);
  const clients = Array.from({ length: 16 }, (_, at) => `2001:db8::${at + 1}`);
  const heads = await Promise.all(clients.map(from));
  expect(heads.every(({ head }) => head.startsWith("HTTP/1.1 101"))).toBe(true);
  expect((await from("2001:db8::ffff")).head).toMatch(/^HTTP\/1\.1 429 /);
  expect((await from("2001:db8:0:1::1")).head).toMatch(/^HTTP\/1\.1 101 /);
});

test("beyond 1,024 sockets that said nothing, nobody new is let in", async () => {
  // They have ten seconds to say something, in which a busy machine does not open so many.
  const controller = await runController({ clock: clockWith(10_000, 600_000) });
  const port = Number(new URL(controller.url).port);
  const addresses = Array.from({ length: 64 }, (_, i) => `127.0.9.${i + 1}`);
  for (const address of addresses) {
    const heads = await Promise.all(Array.from({ length: 16 }, () => startStranger(port, address)));
    expect(heads.every(({ head }) => head.startsWith("HTTP/1.1 101"))).toBe(true);
  }
  const { head } = await startStranger(port, "127.0.10.1");
  expect(head).toMatch(/^HTTP\/1\.1 503 /);
  expect(head).toMatch(/retry-after: \d+/i);
});
