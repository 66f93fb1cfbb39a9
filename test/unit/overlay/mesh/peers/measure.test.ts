import { describe, expect, it } from "vitest";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { echo } from "../../../../support/overlay/overlay-rig.ts";
import { GATEWAY, peerRig, remoteService } from "../../../../support/overlay/peer-rig.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const NOBODY = "10000000-0000-4000-8000-00000000000f";

describe("an echo", () => {
  it("returns from another node, with its path", async () => {
    const { source, destination } = await remoteService(echo);
    for (const bytes of [8, 1200, 65_000]) {
      const answer = await source.flows.measure.echo({ peer: destination.uid, bytes, timeoutMs: 5000 });
      expect(answer).toMatchObject({ gateway: GATEWAY, path: "" });
      expect(answer.rttMs).toBeGreaterThan(0);
      expect(answer.rttMs).toBeLessThan(5000);
    }
    // The other direction has a session of its own.
    await destination.flows.measure.echo({ peer: source.uid, bytes: 8, timeoutMs: 5000 });
    expect(source.flows.states().map(({ role }) => role)).toEqual(["source", "destination"]);
  });

  it("fails by name: unknown peers and paths, no tunnel, no answer in time", async () => {
    const clock = new FakeClock();
    const rig = peerRig();
    const [source, destination] = await Promise.all([rig.node(1, { clock }), rig.node(2)]);
    source.meet([destination.peer]);
    const ask = (peer: string, path?: string): Promise<unknown> =>
      source.flows.measure.echo({ peer, path, bytes: 8, timeoutMs: 1000 });
    await expect(ask(NOBODY)).rejects.toMatchObject({ code: "not-found" });
    await expect(ask(destination.uid, "lte")).rejects.toMatchObject({ code: "not-found" });
    rig.refusal = "no-path";
    await expect(ask(destination.uid)).rejects.toMatchObject({ code: "not-connected" });
    rig.refusal = undefined;
    rig.splice = () => undefined;
    await clock.advance(5000);
    const late = ask(destination.uid);
    const outcome = expect(late).rejects.toMatchObject({ code: "timeout" });
    await waitFor("the splice", () => rig.splices.length === 1);
    await clock.advance(1000);
    await outcome;
  });

  it("is refused to an unknown node, and beyond the limit of one peer", async () => {
    const { source, destination } = await remoteService(echo);
    const tunnel = { peer: destination.uid, bytes: 65_000, timeoutMs: 5000 };
    const all = await Promise.allSettled(Array.from({ length: 100 }, () => source.flows.measure.echo(tunnel)));
    const answered = all.filter(({ status }) => status === "fulfilled");
    expect(answered.length).toBeGreaterThanOrEqual(8);
    expect(answered.length).toBeLessThan(100);
    // Used slots are free again.
    await source.flows.measure.echo(tunnel);
    destination.meet([]);
    await expect(source.flows.measure.echo(tunnel)).rejects.toMatchObject({ code: "not-connected" });
  });
});

describe("an upload", () => {
  it("is counted by the other node, message by message and within its window", async () => {
    const { source, destination } = await remoteService(echo);
    for (const [bytes, messageBytes, windowBytes] of [
      [1, 1, 1024],
      [5000, 100, 1024],
      [5_000_000, 65_536, 1_048_576],
      [3_000_000, 1_048_576, 1024],
    ] as const) {
      const result = await source.flows.measure.perf({
        peer: destination.uid,
        bytes,
        messageBytes,
        windowBytes,
        signal: new AbortController().signal,
        onProgress: () => undefined,
      });
      expect(result).toMatchObject({ bytes, gateway: GATEWAY, path: "" });
      expect(result.ms).toBeGreaterThan(0);
    }
  });

  it("can be cancelled, and reports its progress", async () => {
    const { rig, source, destination } = await remoteService(echo);
    const cancel = new AbortController();
    const reported: number[] = [];
    const running = source.flows.measure.perf({
      peer: destination.uid,
      bytes: 1_000_000_000,
      messageBytes: 1024,
      windowBytes: 4096,
      signal: cancel.signal,
      onProgress: (bytes) => void reported.push(bytes),
    });
    const outcome = expect(running).rejects.toMatchObject({ code: "cancelled" });
    await waitFor("progress", () => reported.length >= 2);
    cancel.abort();
    await outcome;
    expect(reported).toEqual(reported.toSorted((a, b) => a - b));
    await waitFor("its stream is over", () => destination.flows.states()[0]?.activeFlows === 0);
    expect(rig.splices).toHaveLength(1);
  });

  it("fails when the tunnel ends", async () => {
    const { rig, source, destination } = await remoteService(echo);
    const running = source.flows.measure.perf({
      peer: destination.uid,
      bytes: 1_000_000_000,
      messageBytes: 65_536,
      windowBytes: 1_048_576,
      signal: new AbortController().signal,
      onProgress: () => rig.splices[0]?.[0].destroy(),
    });
    await expect(running).rejects.toMatchObject({ code: "not-connected" });
  });
});
