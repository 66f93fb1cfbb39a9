import { expect, test } from "vitest";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";

const stage = networkStage({ a: [] });
const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };

interface Row {
  readonly trackerID: string;
  readonly hits: number;
  readonly initialHit: number | null;
}

/** So many of one length that they are looked up in another way than a few of various lengths. */
const OTHERS = Array.from({ length: 70 }, (_, at) => [
  { uid: `other-in-${at}`, dest: `10.128.${at}.0/24`, toDest: "192.168.1.0/24" },
  { uid: `other-out-${at}`, source: `10.129.${at}.0/24`, masquerade: true },
]).flat();

test("each translation counts its flows, for real packets, until it is reset", async () => {
  const machine = stage.machine("a");
  await machine.apply({
    ...lanSection(WAN),
    forwarding: true,
    nats: [
      { uid: "nat-in", dest: "10.44.0.0/24", toDest: "192.168.1.0/24" },
      { dest: "10.45.0.0/24", toDest: "192.168.1.0/24" },
      { uid: "nat-few", dest: "10.46.0.0/25", toDest: "192.168.1.0/25" },
      { uid: "nat-out", source: "10.9.0.0/24", masquerade: true },
      ...OTHERS,
      { uid: "nat-rest", masquerade: true },
    ],
  });
  const trigger = async (request: object): Promise<Record<string, unknown>> => {
    const path = `/node/${machine.uid}/trigger/nat-hits?wait=1`;
    const { status, text } = await machine.lab.ask("POST", path, request);
    expect(status, text).toBe(200);
    return JSON.parse(text) as Record<string, unknown>;
  };
  const hits = async (): Promise<Record<string, number>> => {
    const { nats } = (await trigger({ action: "GET" })) as { readonly nats: readonly Row[] };
    for (const { hits, initialHit } of nats) expect(initialHit === null).toBe(hits === 0);
    // The last one translates the node's own flows.
    return Object.fromEntries(
      nats.flatMap(({ trackerID, hits }) => (/^nat-rest$|^other-/.test(trackerID) ? [] : [[trackerID, hits]])),
    );
  };
  const none = { "nat-in": 0, "default:1": 0, "nat-few": 0, "nat-out": 0 };
  expect(await hits()).toEqual(none);

  const ping = (address: string): string => machine.sh(`ping -c 2 -i 0.2 -W 2 ${address}`, machine.lan);
  expect(ping("10.44.0.1")).toContain("2 received");
  expect(ping("10.44.0.1")).toContain("2 received");
  expect(ping("10.45.0.1")).toContain("2 received");
  expect(ping("10.46.0.1")).toContain("2 received");
  expect(ping("192.168.1.1")).toContain("2 received");
  // Two packets of one flow are one hit; each translated destination has its source translated too.
  expect(await hits()).toEqual({ ...none, "nat-in": 2, "default:1": 1, "nat-few": 1, "nat-out": 5 });
  expect((await machine.verb("nats", "nat-in")).stdout).toContain("192.168.1.0/24");

  expect(await trigger({ action: "RESET", trackerID: "nat-in" })).toEqual({ reset: 1 });
  expect(await hits()).toEqual({ ...none, "default:1": 1, "nat-few": 1, "nat-out": 5 });
  ping("10.44.0.1");
  expect(await hits()).toEqual({ ...none, "nat-in": 1, "default:1": 1, "nat-few": 1, "nat-out": 6 });
  expect(await trigger({ action: "RESET_ALL" })).toEqual({ reset: 5 + OTHERS.length });
  expect(await hits()).toEqual(none);
});
