import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { connectTo, echo, gatewayRig, inward, outward, textOf } from "../../../support/mesh-rig.ts";
import { meshIdentity } from "../../../support/mesh-identity.ts";
import { waitFor } from "../../../support/wait-for.ts";

const [a, b, c] = await Promise.all([meshIdentity(), meshIdentity(), meshIdentity()]);

describe("a gateway", () => {
  it("carries a stream from one node to another, both ways, with its half-closes", async () => {
    const rig = await gatewayRig([a, b]);
    const seen: Record<string, unknown>[] = [];
    await inward(rig, b, (stream, headers) => {
      seen.push(headers);
      echo(stream);
    });
    const session = await outward(rig.port, a);
    const { stream, answer } = await connectTo(session, b.uid);
    expect(answer[":status"]).toBe(200);
    stream.end("there and back");
    expect(await textOf(stream)).toBe("there and back");
    expect(seen).toMatchObject([{ ":authority": `${b.uid}:443`, "holdfast-hops": "1" }]);
    await waitFor("the splice is over", () => rig.server.activeRelays === 0);
    expect(rig.server.state()).toMatchObject({ state: "listening", relays: { active: 0, total: 1, bytes: 28 } });
  });

  it("refuses to carry to whoever is absent", async () => {
    const rig = await gatewayRig([a, b]);
    const { answer } = await connectTo(await outward(rig.port, a), b.uid);
    expect(answer).toMatchObject({ ":status": 502, "holdfast-reason": "peer-absent" });
  });

  it("ends the sessions of a node that was removed, and the streams through it", async () => {
    const rig = await gatewayRig([a, b]);
    await inward(rig, b);
    const session = await outward(rig.port, a);
    const { stream } = await connectTo(session, b.uid);
    await rig.apply([a, c]);
    await once(stream, "close");
    expect(stream.rstCode).not.toBe(0);
    expect(session.destroyed).toBe(false);
    expect(rig.server.clients()).toMatchObject([
      { peer: b.uid, state: "down", sessions: 0, reason: "it may not dial this gateway any more" },
      { peer: a.uid, state: "up", sessions: 1 },
    ]);
    expect(rig.events).toMatchObject([{ kind: "client-lost", peer: b.uid }]);
  });
});
