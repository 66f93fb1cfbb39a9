import { hostDirectories } from "../../../host/files/directories.ts";
import type { EngineInfo } from "../../../host/engine/engine.ts";
import { privilegesOf } from "../../containers/supervision/privileges.ts";
import type { Seen } from "../../containers/supervision/seen.ts";
import { isUp } from "../../containers/model/standing.ts";
import type { ExecDesired } from "../../sections/exec/actual.ts";
import { checkBinds, checkPrivileges, type BindVerdict } from "../../sections/exec/policy.ts";
import { protectedPaths } from "../../sections/exec/protected-paths.ts";
import type { AgentSettings } from "../../settings.ts";

export interface OpenPolicyOptions {
  readonly settings: Pick<AgentSettings, "stateDir" | "runDir" | "overlay" | "containers">;
  readonly socketPath: () => string;
}

type Bind = Parameters<typeof checkBinds>[0][number];

/** The local policy for containers, with links resolved when it is evaluated. */
export interface OpenedPolicy {
  binds(mounts: readonly Bind[], info: EngineInfo | undefined): Promise<BindVerdict>;
  /** The reason for each definition whose binds are forbidden, given the binds of the others and of running containers. */
  forbidden(
    desired: ExecDesired | undefined,
    seen: Pick<Seen, "works">,
    info: EngineInfo | undefined,
  ): Promise<ReadonlyMap<string, string>>;
  /** Returns, by definition, why a running container's privileges are forbidden. */
  outlawed(seen: Pick<Seen, "works">, info: EngineInfo | undefined): Promise<ReadonlyMap<string, string>>;
  /** Returns why the privileges in `privilegesText` are forbidden; undefined if they are permitted or unknown. */
  forbids(privileges: string | undefined, info: EngineInfo | undefined): Promise<string | undefined>;
}

/** Opens the policy; nothing is read before it is evaluated. */
export function openPolicy({ settings, socketPath }: OpenPolicyOptions): OpenedPolicy {
  async function binds(
    mounts: readonly Bind[],
    info: EngineInfo | undefined,
    others: readonly string[] = [],
  ): Promise<BindVerdict> {
    const engine = { socketPath: socketPath(), rootDirectory: info?.rootDirectory };
    const programs = [process.execPath, ...process.argv.slice(1, 2)];
    const paths = protectedPaths({ ...settings, programs }, engine);
    return checkBinds(mounts, settings.containers, paths, (path) => hostDirectories().realpath(path), others);
  }

  async function forbids(text: string | undefined, info: EngineInfo | undefined): Promise<string | undefined> {
    const given = privilegesOf(text);
    if (given === undefined) return undefined;
    const { privileged, capabilities } = given;
    const beyond = checkPrivileges({ privileged, capabilities: { add: capabilities, drop: [] } }, settings.containers);
    if (beyond !== undefined || given.binds.length === 0) return beyond;
    const verdict = await binds(
      given.binds.map((source) => ({ kind: "bind", source })),
      info,
    );
    // A missing source may exist again at the next start, and is then evaluated again.
    return verdict.verdict === "refused" ? verdict.reason : undefined;
  }

  return {
    binds,
    forbids,
    async forbidden(desired, { works }, info) {
      const found = new Map<string, string>();
      if (info === undefined) return found;
      const containers = (desired?.config.containers ?? []).filter(({ mounts }) => sourcesOf(mounts).length > 0);
      // A container whose definition was removed or disabled can change its binds until it has stopped.
      const running = [...works.values()].flatMap(({ id, standing, privileges }) =>
        isUp(standing.found) ? [{ id, binds: privilegesOf(privileges)?.binds ?? [] }] : [],
      );
      for (const { id, mounts } of containers) {
        const others = [
          ...containers.flatMap((one) => (one.id === id || !one.enabled ? [] : sourcesOf(one.mounts))),
          ...running.flatMap((one) => (one.id === id ? [] : one.binds)),
        ];
        const verdict = await binds(mounts, info, others);
        if (verdict.verdict === "refused") found.set(id, verdict.reason);
      }
      return found;
    },
    async outlawed({ works }, info) {
      const found = new Map<string, string>();
      if (info === undefined) return found;
      for (const { id, standing, privileges } of works.values()) {
        const reason = isUp(standing.found) ? await forbids(privileges, info) : undefined;
        if (reason !== undefined) found.set(id, reason);
      }
      return found;
    },
  };
}

const sourcesOf = (mounts: readonly Bind[]): readonly string[] =>
  mounts.flatMap(({ kind, source }) => (kind === "bind" ? [source] : []));
