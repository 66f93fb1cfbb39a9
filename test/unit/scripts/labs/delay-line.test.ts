import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { delayProxy } from "../../../../scripts/labs/delay-line.ts";
import { untilStill } from "../../../support/until-still.ts";
import { waitFor } from "../../../support/wait-for.ts";

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

interface Way {
  readonly near: Socket;
  readonly far: Socket;
}

/** A connection through a proxy, from end to end. */
async function way(roundTripMs: number): Promise<Way> {
  const sockets: Socket[] = [];
  const target = createServer({ allowHalfOpen: true }, (socket) => sockets.push(socket.on("error", () => undefined)));
  await new Promise<void>((resolve) => target.listen(0, "127.0.0.1", resolve));
  const to = { host: "127.0.0.1", port: portOf(target), roundTripMs };
  const proxy = await delayProxy({ host: "127.0.0.1", port: 0 }, to);
  const near = connect({ host: "127.0.0.1", port: portOf(proxy), allowHalfOpen: true }).on("error", () => undefined);
  onTestFinished(() => {
    for (const socket of [near, ...sockets]) socket.destroy();
    target.close();
    proxy.close();
  });
  await once(near, "connect");
  return { near, far: await waitFor("the other end is connected", () => sockets[0]) };
}

function reading(socket: Socket): { text: () => string; hasEnded: () => boolean } {
  let text = "";
  let hasEnded = false;
  socket.setEncoding("latin1").on("data", (part: string) => (text += part));
  socket.on("end", () => (hasEnded = true));
  return { text: () => text, hasEnded: () => hasEnded };
}

/** Sends one piece after the other, and counts those accepted by the machine. */
function sending(socket: Socket, pieces: number): () => number {
  let taken = 0;
  const next = (): void => {
    taken += 1;
    if (taken < pieces) socket.write(PIECE, next);
  };
  socket.write(PIECE, next);
  return () => taken;
}

const PIECE = Buffer.alloc(64 * 1024, "x");

test("data arrives later and in order, in both directions, and one end leaves the other direction open", async () => {
  const { near, far } = await way(60);
  const [atNear, atFar] = [reading(near), reading(far)];
  const begun = performance.now();
  for (let i = 0; i < 500; i += 1) near.write(`${i};`);
  near.end();
  await waitFor("everything has arrived", () => atFar.hasEnded());
  expect(atFar.text()).toBe(Array.from({ length: 500 }, (_, i) => `${i};`).join(""));
  far.end("answer");
  await waitFor("the answer", () => atNear.hasEnded());
  expect(atNear.text()).toBe("answer");
  expect(performance.now() - begun).toBeGreaterThanOrEqual(60);
});

test("carries much data in flight", async () => {
  const { near, far } = await way(1200);
  const atFar = reading(far);
  const taken = sending(near, 200);
  await waitFor("the first byte has arrived", () => atFar.text().length > 0);
  // A line that held one piece at a time would have accepted little more than that one.
  expect(taken()).toBe(200);
  await waitFor("all of it", () => atFar.text().length === 200 * PIECE.length);
});

test("passes a reset on, and resets for an unreachable target", async () => {
  const { near, far } = await way(20);
  let code: string | undefined;
  far.on("error", (error: NodeJS.ErrnoException) => (code = error.code)).resume();
  near.resetAndDestroy();
  await waitFor("the other end is reset", () => code === "ECONNRESET");

  const nobody = createServer();
  await new Promise<void>((resolve) => nobody.listen(0, "127.0.0.1", resolve));
  const port = portOf(nobody);
  await new Promise((resolve) => nobody.close(resolve));
  const proxy = await delayProxy({ host: "127.0.0.1", port: 0 }, { host: "127.0.0.1", port, roundTripMs: 0 });
  onTestFinished(() => void proxy.close());
  const refused = connect(portOf(proxy), "127.0.0.1");
  const [error] = (await once(refused.resume(), "error")) as [NodeJS.ErrnoException];
  expect(error.code).toBe("ECONNRESET");
});

test("a slow reader slows the sender", async () => {
  const { near, far } = await way(20);
  const pieces = 3000;
  const taken = sending(near, pieces);
  expect(await untilStill("nothing moves", taken)).toBeLessThan(pieces);
  let received = 0;
  far.on("data", (part: Buffer) => (received += part.length));
  await waitFor("all of it arrives", () => received === pieces * PIECE.length);
});
