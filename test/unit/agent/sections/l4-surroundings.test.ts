import { describe, expect, test } from "vitest";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { HostError } from "../../../../src/errors.ts";
import { modelOverlay, sectionsOver } from "../../../support/overlay/l4-model.ts";
import { engineRig } from "../reconcile/rig.ts";

const CONFIG = {
  services: {
    version: 2,
    items: {
      s: { name: "web", protocol: "tcp", host: "127.0.0.1", port: 9000, sourceInterface: "wan" },
      t: { name: "api", protocol: "tcp", host: "127.0.0.1", port: 9001 },
    },
  },
  connectors: {
    version: 2,
    items: {
      n: { node: "local", service: "web", protocol: "tcp", port: 8080, nic: "wan" },
      o: { node: "local", service: "web", protocol: "tcp", port: 8081 },
    },
  },
};

/** Both sections applied on a machine whose link `wan` has one address. */
async function rigWithWan() {
  const overlay = modelOverlay();
  let refusals = 0;
  const flaky: typeof overlay = {
    ...overlay,
    change(edit) {
      if (refusals === 0) return overlay.change(edit);
      refusals -= 1;
      return Promise.reject(new HostError("overlay-failed", "gone"));
    },
  };
  let wan: readonly string[] = ["10.0.0.1"];
  const { services, connectors } = sectionsOver(flaky, "Node", () => new Map([["wan", wan]]));
  const rig = engineRig([reconciler(services), reconciler(connectors)]);
  rig.engine.start();
  await rig.want(CONFIG);
  const look = async (): Promise<void> => {
    rig.engine.reevaluate("addresses");
    await rig.engine.idle();
  };
  return {
    ...rig,
    overlay,
    look,
    refuse: (times: number) => void (refusals = times),
    /** Sets the addresses of the link, and runs a pass. */
    readdress: async (...addresses: readonly string[]): Promise<void> => {
      wan = addresses;
      await look();
    },
    /** Changes listeners as another program. */
    tamper: (change: (listeners: Map<string, { maxFlows: number }>) => void): void => {
      const listeners = new Map(overlay.view().listeners);
      change(listeners);
      overlay.become({ ...overlay.view(), listeners });
    },
    bound: () => overlay.view().listeners.get("tcp/nic:wan/8080")?.addresses,
    source: () => overlay.view().services.get("web")?.sourceAddress,
    drifts: () => ["services", "connectors"].map((name) => rig.standing(name).drift.count),
  };
}

describe("changing addresses", () => {
  test("are followed without drift", async () => {
    const rig = await rigWithWan();
    await rig.readdress("10.0.0.2", "10.0.0.3");
    expect([rig.bound(), rig.source()]).toEqual([["10.0.0.2", "10.0.0.3"], "10.0.0.2"]);
    await rig.readdress();
    expect([rig.bound(), rig.source()]).toEqual([undefined, undefined]);
    await rig.readdress("10.0.0.1");
    expect([rig.bound(), rig.source()]).toEqual([["10.0.0.1"], "10.0.0.1"]);
    expect(rig.drifts()).toEqual([0, 0]);
  });

  test("do not hide other changes from the drift", async () => {
    const rig = await rigWithWan();
    rig.tamper((listeners) => listeners.delete("tcp/any/8081"));
    await rig.readdress("10.0.0.2");
    expect(rig.standing("connectors").drift).toMatchObject({ count: 1, what: ["listen o"] });
    rig.tamper((listeners) => listeners.delete("tcp/nic:wan/8080"));
    await rig.look();
    expect(rig.standing("connectors").drift).toMatchObject({ count: 2, what: ["listen n"] });
    expect(rig.standing("services").drift.count).toBe(0);
  });

  test("are no drift either when following them takes several attempts", async () => {
    const rig = await rigWithWan();
    rig.refuse(3);
    await rig.readdress("10.0.0.2");
    expect(rig.standing("services").outcome.state).toBe("failed");
    await rig.readdress("10.0.0.3");
    await rig.look();
    expect([rig.bound(), rig.source()]).toEqual([["10.0.0.3"], "10.0.0.3"]);
    expect(rig.drifts()).toEqual([0, 0]);
  });
});
