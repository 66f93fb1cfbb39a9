import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { standingAsker } from "../../../src/agent/offline/offline.ts";
import { toError } from "../../../src/errors.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostDialler } from "../../../src/host/net/dial.ts";
import { hostDirectories } from "../../../src/host/files/directories.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { systemResolve } from "../../../src/host/net/system-resolve.ts";
import { hostVersions } from "../../../src/host/releases/versions.ts";
import { localAgent } from "../../../src/upgrade/local-agent.ts";
import { EXIT, runAlone } from "../../../src/upgrade/main.ts";
import { hostProbe } from "../../../src/upgrade/probe.ts";
import { requestBox } from "../../../src/upgrade/request-box.ts";

/** The directories and limits of one upgrade. */
export const UpgradeWork = z.object({
  run: z.string(),
  state: z.string(),
  lib: z.string(),
  versions: z.string(),
  ownVersion: z.string(),
  limits: z.object({
    windowMs: z.number(),
    settleMs: z.number(),
    maxElapsedMs: z.number(),
    againMs: z.number(),
    betterMs: z.number(),
    everyMs: z.number(),
    askEveryMs: z.number(),
    pendingMs: z.number(),
    backMs: z.number(),
    probationSeconds: z.number(),
  }),
});
export type UpgradeWork = z.infer<typeof UpgradeWork>;

/** Runs an upgrade on the directories of a test until it ends or is stopped; returns its exit status. The releases are made here. */
export async function runUpgrade(
  { run, state, lib, versions: path, ownVersion, limits }: UpgradeWork,
  print: (line: string) => void,
  signal: AbortSignal,
): Promise<number> {
  const clock = systemClock();
  const files = hostFiles();
  const resolve = systemResolve();
  const versions = hostVersions({ path, packagePath: lib, files, directories: hostDirectories(), signal });
  const requested = (what: string): Promise<void> => {
    writeFileSync(join(run, what), "");
    return Promise.resolve();
  };
  try {
    return await runAlone(
      {
        versions,
        requests: requestBox(files, { asked: join(run, "upgrade-request.json"), kept: path, print }),
        async prepare({ from }, onStep) {
          // The URL is a directory in the form of a version.
          const version = readFileSync(join(from, "version"), "utf8").trim();
          await onStep("fetching");
          await onStep("unpacking", version);
          const unpacked = join(await versions.staging(), `${version}.unpacked`);
          mkdirSync(unpacked, { recursive: true });
          cpSync(from, unpacked, { recursive: true });
          await onStep("testing", version);
          await versions.stage(`${version}.unpacked`, version, version);
          return version;
        },
        services: {
          restartAgent: () => requested("restart"),
          startAgent: () => Promise.resolve(),
          updateSystem: async () => {
            await requested("system-updated");
            return true;
          },
          succeedOverlay: () => requested("overlay-succeeded"),
        },
        agent: localAgent(run),
        isChangeLeft: () => Promise.resolve(false),
        targets: () => Promise.resolve(undefined),
        probe: hostProbe({
          askStanding: standingAsker(state),
          dialler: (proxies) => hostDialler(clock, proxies, resolve),
          resolve,
        }),
        clock,
        bootId: "boot",
        ownVersion,
        limits,
        print,
      },
      signal,
    );
  } catch (error) {
    print(toError(error).message);
    return signal.aborted ? 0 : EXIT.busy;
  }
}
