import { systemClock } from "../host/clock.ts";
import { hostDialler } from "../host/net/dial.ts";
import { hostDirectories } from "../host/files/directories.ts";
import { hostExec } from "../host/process/exec.ts";
import { hostFiles } from "../host/files/files.ts";
import { debianArchitecture } from "../host/machine/os-release.ts";
import { hostReleaseSource } from "../host/releases/release-source.ts";
import { hostSelfTester } from "../host/process/self-tester.ts";
import { resolveSet, systemResolve } from "../host/net/system-resolve.ts";
import { hostVersions } from "../host/releases/versions.ts";
import { buildInfo } from "../lib/build-info.ts";
import type { ProxySettings } from "../lib/net/proxy.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import { Architecture, UPGRADE_PATHS } from "../protocol/documents/release.ts";
import type { FetchDeps } from "./fetch.ts";

/** Paths and settings of a fetch; paths default to the package's. */
export interface FetchingOptions {
  readonly packagePath?: string;
  readonly versionsPath?: string;
  readonly keyPaths?: readonly string[];
  readonly stateDir?: string;
  readonly configFile?: string;
  /** Addresses that the node must reach and the proxy, by the agent's settings and registration. */
  readonly targets: NetworkTargets | undefined;
}

/** Returns the dependencies of a fetch on this machine. */
export function openFetching(
  options: FetchingOptions,
  onStep: FetchDeps["onStep"],
  signal: AbortSignal,
): Omit<FetchDeps, "onRetry"> {
  const { packagePath = UPGRADE_PATHS.package, versionsPath = UPGRADE_PATHS.versions, targets } = options;
  const { stateDir = "/var/lib/holdfast", configFile = "/etc/holdfast/agent.json" } = options;
  const clock = systemClock();
  const files = hostFiles();
  const directories = hostDirectories();
  const { controlPlane } = targets ?? {};
  return {
    clock,
    files,
    onStep,
    source: hostReleaseSource({
      dialler: hostDialler(clock, proxiesOf(targets), resolveSet(targets?.hosts ?? {}, systemResolve())),
      clock,
      controlPlane:
        controlPlane === undefined ? undefined : { origin: new URL(controlPlane.url).origin, pins: controlPlane.pins },
    }),
    versions: hostVersions({ packagePath, path: versionsPath, files, directories, signal }),
    selfTester: hostSelfTester({ exec: hostExec(clock), stateDir, configFile }),
    keyPaths: options.keyPaths ?? [UPGRADE_PATHS.localKeys, `${packagePath}/release-keys.json`],
    own: buildInfo,
    architecture: Architecture.safeParse(debianArchitecture(process.arch)).data,
    random: Math.random,
  };
}

/** The configured proxy serves https and http, because a release may use either. */
function proxiesOf(targets: NetworkTargets | undefined): ProxySettings {
  const { proxy } = targets ?? {};
  if (proxy === undefined) return { noProxy: [] };
  const url = new URL(proxy.url);
  return { https: url, http: url, noProxy: proxy.noProxy };
}
