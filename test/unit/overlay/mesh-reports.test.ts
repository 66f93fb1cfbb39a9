import { describe, expect, it } from "vitest";
import type { ControlPeer } from "../../../src/overlay/control.ts";
import { MeshReports } from "../../../src/overlay/mesh-reports.ts";
import type { MeshEvent, MeshState, RttBucket } from "../../../src/protocol/overlay/mesh.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const STATE: MeshState = {
  paths: [],
  clients: [],
  sessions: [],
  server: { state: "off", refused: {}, relays: { active: 0, total: 0, bytes: 0 } },
};
const GATEWAY = "00000000-0000-4000-8000-00000000000a";

interface Told {
  readonly peer: ControlPeer;
  readonly notices: { method: string; params: unknown }[];
  events(): MeshEvent[];
  buckets(): RttBucket[];
}

function subscriber(): Told {
  const notices: Told["notices"] = [];
  const of = (method: string): readonly object[] =>
    notices.flatMap((one) => (one.method === method ? [one.params as object] : []));
  const notify = (method: string, params: unknown): void => void notices.push({ method, params });
  return {
    peer: { notify } as unknown as ControlPeer,
    notices,
    events: () => of("mesh.events").flatMap((params) => (params as { events: MeshEvent[] }).events),
    buckets: () => of("rtt.closed").flatMap((params) => (params as { buckets: RttBucket[] }).buckets),
  };
}

function event(at: number): MeshEvent {
  return { kind: "path-lost", at, gateway: GATEWAY, path: "", cause: "test" };
}

function bucket(time: number): RttBucket {
  const figures = { minRtt: 1, maxRtt: 1, meanRtt: 1, stdRtt: 0 };
  return { gateway: GATEWAY, path: "", time, numRtt: 3, answered: 3, ...figures };
}

describe("reports on the mesh", () => {
  it("send states that take long within a two hundredth of the time", async () => {
    const clock = new FakeClock();
    // Reading the states alone takes 20 ms.
    const reading = { ...STATE };
    const slow = {
      now: () => clock.now(),
      elapsed: () => clock.elapsed() + tookMs,
      sinceBoot: () => clock.sinceBoot(),
      sleep: (ms: number, signal?: AbortSignal) => clock.sleep(ms, signal),
      after: (ms: number, run: () => void) => clock.after(ms, run),
    };
    let tookMs = 0;
    const reports = new MeshReports(slow, () => {
      tookMs += 20;
      return reading;
    });
    const reported = subscriber();
    reports.deliverTo(reported.peer);
    for (let ms = 0; ms < 5000; ms += 50) {
      reports.changed();
      await clock.advance(50);
    }
    // One after the first tenth of a second, and then one a second.
    expect(reported.notices).toHaveLength(5);
  });

  it("send states at most every tenth of a second, and none with an answer only", async () => {
    const clock = new FakeClock();
    const reports = new MeshReports(clock, () => STATE);
    const reported = subscriber();
    reports.changed();
    reports.deliverTo(reported.peer);
    for (let i = 0; i < 50; i += 1) {
      reports.changed();
      await clock.advance(10);
    }
    expect(reported.notices.length).toBeGreaterThan(3);
    expect(reported.notices.length).toBeLessThanOrEqual(5);
    expect(reported.notices[0]).toEqual({
      method: "mesh.changed",
      params: { paths: [], clients: [], server: STATE.server },
    });
    reports.changed();
    reports.deliverTo(undefined);
    await clock.advance(1000);
    expect(reported.notices.length).toBeLessThanOrEqual(5);
    reports.close();
  });

  it("buffer events and round trips for the next subscriber, the newest of them", () => {
    const clock = new FakeClock();
    const reports = new MeshReports(clock, () => STATE);
    for (let i = 0; i < 1200; i += 1) reports.events([event(i)]);
    const reported = subscriber();
    reports.deliverTo(reported.peer);
    expect(reported.events().map(({ at }) => at)).toEqual(Array.from({ length: 1000 }, (_, i) => i + 200));
    expect(reported.notices.every(({ params }) => (params as { events: [] }).events.length <= 500)).toBe(true);
    reports.events([event(2000)]);
    expect(reported.events().at(-1)?.at).toBe(2000);
    reports.deliverTo(undefined);
    reports.deliverTo(reported.peer);
    expect(reported.events()).toHaveLength(1001);
  });

  it("buffer round trips of the last day, within a limit", () => {
    const clock = new FakeClock();
    const reports = new MeshReports(clock, () => STATE);
    const now = clock.now();
    reports.buckets([bucket(now - 25 * 3_600_000), bucket(now - 23 * 3_600_000)]);
    reports.buckets(Array.from({ length: 20_000 }, (_, i) => bucket(now + i)));
    const reported = subscriber();
    reports.deliverTo(reported.peer);
    expect(reported.buckets()).toHaveLength(14_400);
    expect(reported.buckets().at(-1)?.time).toBe(now + 19_999);
  });
});
