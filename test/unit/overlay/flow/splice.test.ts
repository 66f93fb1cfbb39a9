import { once } from "node:events";
import type { ServerHttp2Stream } from "node:http2";
import { describe, expect, it } from "vitest";
import {
  connectTo,
  gatewayRig,
  inbound,
  outbound,
  textOf,
  type GatewayRig,
} from "../../../support/overlay/mesh-rig.ts";
import { meshIdentity } from "../../../support/overlay/mesh-identity.ts";
import { waitFor } from "../../../support/wait-for.ts";

const [a, b] = await Promise.all([meshIdentity(), meshIdentity()]);

/** A spliced stream with both its ends in hand. */
async function spliced(rig: GatewayRig) {
  const far: ServerHttp2Stream[] = [];
  await inbound(rig, b, (stream) => {
    stream.respond({ ":status": 200 });
    far.push(stream);
  });
  const session = await outbound(rig.port, a);
  const { stream: near } = await connectTo(session, b.uid);
  const [end] = far;
  if (end === undefined) throw new Error("answered without having arrived");
  return { near, far: end, session };
}

const over = (rig: GatewayRig) => waitFor("nothing is carried", () => rig.server.activeRelays === 0);

describe("a spliced stream", () => {
  it("keeps a half-close of either side", async () => {
    const rig = await gatewayRig([a, b]);
    const { near, far } = await spliced(rig);
    near.end("question");
    expect(await textOf(far)).toBe("question");
    far.end("answer");
    expect(await textOf(near)).toBe("answer");
    await over(rig);
    expect([near.rstCode, far.rstCode]).toEqual([0, 0]);

    const second = await gatewayRig([a, b]);
    const other = await spliced(second);
    const received = textOf(other.far);
    other.far.end("first");
    expect(await textOf(other.near)).toBe("first");
    other.near.end("second");
    expect(await received).toBe("second");
    await over(second);
  });

  it.each([
    ["near", "far"],
    ["far", "near"],
  ] as const)("passes a reset of the %s side on, with its code, and no end before it", async (from, to) => {
    const rig = await gatewayRig([a, b]);
    const sides = await spliced(rig);
    sides[from].on("error", () => undefined).write("part");
    await once(sides[to], "data");
    let hasEnded = false;
    sides[to].on("end", () => (hasEnded ||= sides[to].rstCode === 0)).resume();
    sides[from]._final = (callback) => callback();
    sides[from].close(10);
    await new Promise((resolve) => sides[to].on("error", () => undefined).once("close", resolve));
    expect(sides[to].rstCode).toBe(10);
    expect(hasEnded).toBe(false);
    await over(rig);
  });

  it("passes a reset on at once, although earlier data was not read", async () => {
    const rig = await gatewayRig([a, b]);
    const { near, far } = await spliced(rig);
    // More than all windows between hold.
    for (let sent = 0; sent < 8; sent += 1) near.write(Buffer.alloc(1024 * 1024));
    await waitFor("it is full of it", () => rig.receiveBuffers.held(a.uid) > 1024 * 1024);
    near.on("error", () => undefined).close(8);
    await once(far, "close");
    expect(far.rstCode).toBe(8);
    await over(rig);
    expect(rig.receiveBuffers.held()).toBe(0);
  });

  it("is reset when the session of the other side breaks", async () => {
    const rig = await gatewayRig([a, b]);
    const { near, far, session } = await spliced(rig);
    near.on("error", () => undefined);
    far.session?.destroy();
    await once(near, "close");
    expect(near.rstCode).not.toBe(0);
    expect(session.destroyed).toBe(false);
    await over(rig);
  });

  it("stalls alone: others on the same sessions continue", async () => {
    const rig = await gatewayRig([a, b]);
    const far: ServerHttp2Stream[] = [];
    await inbound(rig, b, (stream) => {
      stream.respond({ ":status": 200 });
      if (far.push(stream) > 1) stream.pipe(stream);
    });
    const session = await outbound(rig.port, a);
    const { stream: stalled } = await connectTo(session, b.uid);
    stalled.on("error", () => undefined).write(Buffer.alloc(16 * 1024 * 1024));
    await waitFor("it stands still", () => rig.receiveBuffers.held(a.uid) > 1024 * 1024);
    const { stream } = await connectTo(session, b.uid);
    const much = "0123456789".repeat(400_000);
    stream.end(much);
    expect((await textOf(stream)).length).toBe(much.length);
    far[0]?.resume();
    await waitFor("and the first goes on when it is read", () => stalled.writableLength === 0);
  });

  it("is read within the node's rate limit, in either direction, and the limit can be lifted", async () => {
    const rig = await gatewayRig([a, b]);
    await rig.apply([a, b], {
      server: { addresses: ["127.0.0.1"], port: rig.port },
      egressBitsPerSecond: 8 * 64 * 1024,
    });
    const { near, far } = await spliced(rig);
    let got = 0;
    far.on("data", (chunk: Buffer) => (got += chunk.length));
    near.end(Buffer.alloc(4 * 1024 * 1024));
    await waitFor("the burst came", () => got > 0);
    // At 64 KiB a second the whole would take a minute.
    expect(rig.limiters.out.isOpen).toBe(false);
    const burst = got;
    await waitFor("more comes at the limit", () => got > burst);
    expect(got).toBeLessThan(2 * 1024 * 1024);
    await rig.apply([a, b], { server: { addresses: ["127.0.0.1"], port: rig.port } });
    await waitFor("all came", () => got === 4 * 1024 * 1024);
  });
});
