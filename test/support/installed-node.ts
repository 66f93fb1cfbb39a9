import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { missingForMachines } from "./upgrades/appliance-machine.ts";
import { InstalledStage } from "./upgrades/installed-stage.ts";
import { filesOf, type MachineFiles } from "./machine/machine-files.ts";
import { onceInRun } from "./once-in-run.ts";
import { Releases, type Release } from "./upgrades/releases.ts";

export const AGENT = "holdfast-agent.service";
export const OVERLAY = "holdfast-overlay.service";
export const BASE = "20260101-000000.ba5e";
export const GOOD = "20260201-000000.600d";
export const METRICS = "127.0.0.1:9464";

export interface InstalledNode {
  readonly stage: InstalledStage;
  readonly releases: Releases;
  /** The installed release. */
  readonly base: Release;
  /** The files of the machine before the package was installed. */
  readonly before: MachineFiles;
}

/** Packages the release that all files of a run use, which takes longer than most of their tests, and returns the directory of releases. */
export function sharedReleases(): Promise<string> {
  return onceInRun("releases", async (dir) => {
    await new Releases(dir).package(BASE);
  });
}

/** Installs a machine with the base release, a registered node and a network of ours, once in a run, and returns where it is kept. */
function sharedInstallation(): Promise<string> {
  return onceInRun("installation", async (dir) => {
    const [stage, shared] = await Promise.all([InstalledStage.make(), sharedReleases()]);
    try {
      writeFileSync(join(dir, "before"), (await filesOf(stage.machine)).join("\n"));
      await stage.install(new Releases(shared).named(BASE));
      await stage.setUp({ metrics: { listen: METRICS } });
      await stage.setNetwork();
      await stage.keep(dir);
    } finally {
      await stage.remove();
    }
  });
}

/** Provides a machine for the tests of a file, with the package, a registered node and a network of ours, or empty. */
export function installedNode({ isInstalled = true } = {}): InstalledNode {
  const dir = mkdtempSync(join(tmpdir(), "hf-releases-"));
  let made: InstalledNode | undefined;
  beforeAll(async () => {
    const [kept, shared] = await Promise.all([isInstalled ? sharedInstallation() : undefined, sharedReleases()]);
    // The same files under names of its own, to which it adds.
    execFileSync("cp", ["-al", `${shared}/.`, dir]);
    const releases = new Releases(dir);
    const stage = await InstalledStage.make(kept);
    const before =
      kept === undefined ? await filesOf(stage.machine) : readFileSync(join(kept, "before"), "utf8").split("\n");
    made = { stage, releases, base: releases.named(BASE), before };
  }, 600_000);
  afterAll(async () => {
    rmSync(dir, { recursive: true, force: true });
    await made?.stage.remove();
  });
  const get = (): InstalledNode => {
    if (made === undefined) throw new Error(missingForMachines() ?? "the machine is not made yet");
    return made;
  };
  return {
    get releases() {
      return get().releases;
    },
    get stage() {
      return get().stage;
    },
    get base() {
      return get().base;
    },
    get before() {
      return get().before;
    },
  };
}
