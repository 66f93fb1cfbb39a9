import { describe, expect, it } from "vitest";
import { domainRig } from "../../../support/overlay/domain-rig.ts";
import { waitFor } from "../../../support/wait-for.ts";

const shy = { connectToPublic: false };
const serves = (type: string, more: Readonly<Record<string, unknown>> = {}) => ({ enabled: true, type, ...more });
const clients = (...names: readonly string[]) => ({ clients: names.map((name) => ({ name, enabled: true })) });

describe("a private gateway", () => {
  it("serves the clients of its list, as nodes and as sources and destinations, and ends those removed", async () => {
    const gw = serves("private", clients("a", "b"));
    const rig = await domainRig({ gw, a: undefined, b: undefined, c: undefined }, [
      ["a", "b"],
      ["gw", "a"],
      ["c", "a"],
    ]);
    await rig.settled();
    expect(rig.state("c").paths).toEqual([]);
    expect(await rig.ask("a", "b")).toBe("served");
    expect(await rig.ask("gw", "a")).toBe("served");
    expect(await rig.ask("c", "a")).toBe("no-path");
    const switchedOff = [
      { name: "a", enabled: true },
      { name: "b", enabled: false },
    ];
    await rig.change({ gw: serves("private", { clients: switchedOff }) });
    expect(rig.state("b").paths).toEqual([]);
    const client = () => rig.state("gw").clients.find(({ peer }) => peer === rig.uidOf("b"));
    await waitFor("its sessions are over", () => client()?.state === "down");
    expect(client()?.reason).toBe("it may no longer dial this gateway");
    await waitFor("A is told", async () => (await rig.ask("a", "b")) === "peer-absent");
    expect(await rig.ask("gw", "a")).toBe("served");
  });
});

describe("a hub", () => {
  const sections = { hub: serves("hub"), gw: serves("public"), a: undefined, b: shy };

  it("leads from the clients of a public gateway to its own", async () => {
    const rig = await domainRig(sections, [
      ["a", "b"],
      ["gw", "b"],
    ]);
    // By its own choice A would use the hub itself.
    await rig.change({ hub: serves("hub"), a: { routes: [{ route: "b", dest: "gw", metric: 1 }] } });
    await rig.settled();
    expect(await rig.ask("a", "b")).toBe("served");
    expect([rig.relayed("gw"), rig.relayed("hub")]).toEqual([1, 1]);
    expect(await rig.ask("gw", "b")).toBe("served");
  });

  it("checks relayed streams by their first node, in the direction of the pair", async () => {
    const rig = await domainRig({ ...sections, a: { routes: [{ route: "b", dest: "gw", metric: 1 }] } }, [
      ["a", "b"],
      ["gw", "b"],
      ["b", "a"],
    ]);
    await rig.change({ hub: serves("hub", { acls: [{ source: "a", dest: "b" }] }) });
    await rig.settled();
    expect(await rig.ask("a", "b")).toBe("served");
    expect(rig.relayed("gw")).toBe(1);
    expect(await rig.ask("gw", "b")).toBe("relay-refused");
    expect(await rig.ask("b", "a")).toBe("relay-refused");
  });
});

describe("static routes of a gateway", () => {
  // T is behind the hub, which GW dials, and behind the private gateway Q, which dials GW.
  const routes = (hub: number, q: number) => ({
    routes: [
      { route: "t", dest: "hub", metric: hub },
      { route: "t", dest: "q", metric: q },
    ],
  });
  const sections = (hub: number, q: number) => ({
    hub: serves("hub"),
    q: serves("private", clients("t")),
    gw: serves("public", routes(hub, q)),
    a: { routes: [{ route: "t", dest: "gw", metric: 1 }] },
    t: shy,
  });

  it.each([
    { hub: 1, q: 9, by: "hub", other: "q" },
    { hub: 9, q: 1, by: "q", other: "hub" },
  ])("are chosen by their metric, independent of the dialling side: $by", async ({ hub, q, by, other }) => {
    const rig = await domainRig(sections(hub, q), [
      ["a", "t"],
      ["gw", "t"],
    ]);
    await rig.settled();
    expect(await rig.ask("a", "t")).toBe("served");
    expect(rig.relayed("gw")).toBe(1);
    expect(await rig.ask("gw", "t")).toBe("served");
    expect([rig.relayed(by), rig.relayed(other)]).toEqual([2, 0]);
  });

  it("use the next when the best one may not relay", async () => {
    const closed = serves("private", { acls: [{ source: "q", dest: "q" }] });
    const rig = await domainRig({ ...sections(9, 1), q: closed }, [
      ["a", "t"],
      ["gw", "t"],
    ]);
    await rig.settled();
    expect(await rig.ask("a", "t")).toBe("served");
    expect(await rig.ask("gw", "t")).toBe("served");
    expect(rig.relayed("hub")).toBe(2);
  });
});
