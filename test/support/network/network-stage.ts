import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect } from "vitest";
import { openGateways } from "../../../scripts/labs/furnish.ts";
import { Lab } from "../../../scripts/labs/lab.ts";
import { layoutOf, type Site } from "../../../scripts/labs/layout.ts";
import { EdgeMachine } from "./edge-machine.ts";

/** A section with an interface as the WAN, and an address on the LAN. */
export function lanSection<T extends object>(wan: T): { readonly interfaces: readonly (T | typeof LAN)[] } {
  return { interfaces: [wan, LAN] };
}

const LAN = { nic: "eth1", ip: "10.9.0.1/24" };

/** A lab whose edges are machines that own their networks. Needs root. */
export interface NetworkStage {
  readonly lab: Lab;
  readonly machine: (name: string) => EdgeMachine;
}

/** Builds a lab with these edges before the tests of the calling file, and removes it afterwards. */
export function networkStage(
  edges: Readonly<Record<string, Site["others"]>>,
  { gateways = [] }: { readonly gateways?: readonly string[] } = {},
): NetworkStage {
  const dir = mkdtempSync(join(tmpdir(), "hf-lab-"));
  let built: Lab | undefined;
  const machines = new Map<string, EdgeMachine>();
  beforeAll(async () => {
    expect(process.getuid?.(), "these tests need root, since they make network namespaces").toBe(0);
    const lab = await Lab.up(dir, layoutOf(gateways, edges));
    built = lab;
    await openGateways(lab);
    for (const name of Object.keys(edges)) machines.set(name, new EdgeMachine(lab, name));
  });
  afterAll(async () => {
    await Lab.down(dir, { isAbrupt: true });
    rmSync(dir, { recursive: true, force: true });
  });
  return {
    get lab() {
      if (built === undefined) throw new Error("the lab is not up");
      return built;
    },
    machine(name) {
      const machine = machines.get(name);
      if (machine === undefined) throw new Error(`no machine is called ${name}`);
      return machine;
    },
  };
}
