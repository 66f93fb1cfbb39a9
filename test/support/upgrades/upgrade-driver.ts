// Runs an upgrade on the directories of a test, once the tracer has attached; the releases are made here.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { standingAsker } from "../../../src/agent/offline/offline.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostDialler } from "../../../src/host/net/dial.ts";
import { hostDirectories } from "../../../src/host/files/directories.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { systemResolve } from "../../../src/host/net/system-resolve.ts";
import { hostVersions } from "../../../src/host/releases/versions.ts";
import { toError } from "../../../src/errors.ts";
import { localAgent } from "../../../src/upgrade/local-agent.ts";
import { runAlone } from "../../../src/upgrade/main.ts";
import { hostProbe } from "../../../src/upgrade/probe.ts";
import { requestBox } from "../../../src/upgrade/request-box.ts";
import { waitForTracer } from "../wait-for-tracer.ts";

const Work = z.object({
  run: z.string(),
  state: z.string(),
  lib: z.string(),
  versions: z.string(),
  ownVersion: z.string(),
  isTraced: z.boolean(),
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

const work = Work.parse(JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")));
const { run, limits, ownVersion } = work;
const clock = systemClock();
const files = hostFiles();
const resolve = systemResolve();
const print = (line: string): void => void process.stdout.write(`${line}\n`);
const ending = new AbortController();
process.once("SIGTERM", () => ending.abort(new Error("told to stop")));
const versions = hostVersions({
  path: work.versions,
  packagePath: work.lib,
  files,
  directories: hostDirectories(),
  signal: ending.signal,
});
const requested = (what: string): Promise<void> => {
  writeFileSync(join(run, what), "");
  return Promise.resolve();
};
if (work.isTraced) await waitForTracer();
try {
  process.exitCode = await runAlone(
    {
      versions,
      requests: requestBox(files, { asked: join(run, "upgrade-request.json"), kept: work.versions, print }),
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
        askStanding: standingAsker(work.state),
        dialler: (proxies) => hostDialler(clock, proxies, resolve),
        resolve,
      }),
      clock,
      bootId: "boot",
      ownVersion,
      limits,
      print,
    },
    ending.signal,
  );
} catch (error) {
  print(toError(error).message);
  process.exitCode = ending.signal.aborted ? 0 : 75;
}
