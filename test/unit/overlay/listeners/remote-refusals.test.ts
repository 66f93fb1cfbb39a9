import { createSocket } from "node:dgram";
import { describe, expect, it } from "vitest";
import { remoteRefusals } from "../../../../src/overlay/listeners/remote-refusals.ts";
import type { OverlayReason } from "../../../../src/protocol/overlay/overlay.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { aClient, aListener, aService, echo } from "../../../support/overlay/overlay-rig.ts";
import { remoteService } from "../../../support/overlay/peer-rig.ts";
import { freePort } from "../../../support/machine/programs.ts";
import { waitFor } from "../../../support/wait-for.ts";

function rig(answers: Partial<Record<string, OverlayReason>> = {}) {
  const clock = new FakeClock();
  const requested: string[] = [];
  const reported: (OverlayReason | undefined)[] = [];
  const far = remoteRefusals<string>({
    clock,
    ask: async (user) => {
      requested.push(user);
      return answers[user];
    },
    onChanged: () => reported.push(far.reasonFor("a")),
  });
  return { clock, requested, reported, far, answers };
}

describe("the refusals of other nodes", () => {
  it("hold until the other node answers otherwise, polled with backoff", async () => {
    const { clock, requested, reported, far, answers } = rig({ a: "unknown-service" });
    far.note("a", "unknown-service");
    expect(far.reasonFor("a")).toBe("unknown-service");
    await clock.advance(60_000);
    expect(reported).toEqual(["unknown-service"]);
    // After 1, 2, 4, 8 and then every 15 seconds.
    expect(requested).toHaveLength(7);
    answers["a"] = "not-granted";
    await clock.advance(15_100);
    expect(reported).toEqual(["unknown-service", "not-granted"]);
    delete answers["a"];
    await clock.advance(15_100);
    expect(reported).toEqual(["unknown-service", "not-granted", undefined]);
    const count = requested.length;
    await clock.advance(600_000);
    expect(requested).toHaveLength(count);
  });

  it("include only lasting ones, and stay while the node is unreachable", async () => {
    const { clock, requested, far, answers } = rig();
    far.note("a", "connect-refused");
    far.note("a", "tunnel-lost");
    expect(far.reasonFor("a")).toBeUndefined();
    answers["a"] = "peer-absent";
    far.note("a", "service-down");
    await clock.advance(60_000);
    expect(requested.length).toBeGreaterThan(3);
    expect(far.reasonFor("a")).toBe("service-down");
    far.forget("a");
    expect(far.reasonFor("a")).toBeUndefined();
  });

  it("are not polled once closed", async () => {
    const { clock, requested, reported, far } = rig({ a: "not-granted" });
    far.note("a", "not-granted");
    far.close();
    await clock.advance(60_000);
    expect([requested, reported]).toEqual([[], []]);
  });
});

describe("a connector to a service that the other node does not serve", () => {
  it("reports it, polls without a flow, and recovers once the service is back", async () => {
    const { source, destination, port, target } = await remoteService(echo);
    await destination.apply([], []);
    const client = aClient(port);
    await waitFor("it is refused", () => client.fate());
    await waitFor("it is reported", () =>
      source.listeners.some(({ state, reason }) => state === "failed" && reason === "unknown-service"),
    );
    expect(await source.nextFlow()).toMatchObject({ reason: "unknown-service" });
    await destination.apply([], [aService("web", target)]);
    await waitFor("it is in order", () => source.listeners.at(-1)?.state === "listening");
    // The polls were no flows, at neither end.
    expect(source.counters()).toMatchObject({ refusals: { "unknown-service": 1 } });
    expect(destination.plane.activeFlows).toBe(0);
    expect(destination.ended).toHaveLength(1);
  });

  it("reports a missing grant, over UDP too, until it leads elsewhere", async () => {
    const stage = await remoteService(echo);
    const { source, destination } = stage;
    await destination.apply([], [aService("names", stage.target, { protocol: "udp" })]);
    destination.meet([source.peer], []);
    const port = await freePort();
    const listener = aListener(port, { peer: destination.uid, service: "names" }, { protocol: "udp" });
    await source.apply([listener]);
    const socket = createSocket("udp4");
    socket.send("x", port, "127.0.0.1");
    await waitFor("it is reported", () => source.listeners.at(-1)?.reason === "not-granted");
    socket.close();
    await source.apply([{ ...listener, target: { peer: destination.uid, service: "other" } }]);
    await waitFor("it is forgotten", () => source.listeners.at(-1)?.state === "listening");
  });
});
