import { InputError } from "../../../errors.ts";
import { untilAborted } from "../../../lib/async/until-aborted.ts";
import type { DnsHealthAnswer, RepoConnectivityAnswer } from "../../../protocol/triggers/diagnostics.ts";
import { NoBody } from "../../../protocol/triggers/bodies.ts";
import type { HealthChecks } from "../../telemetry/conditions/health-checks.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** Health checks of a registered node; undefined before registration. */
export type RegisteredChecks = () => Pick<HealthChecks, "results" | "checkDns" | "checkRepository"> | undefined;

const shared = {
  kind: "one-shot",
  request: NoBody,
  // Three queries of each server, ten seconds apart.
  deadlineMs: 60_000,
  needsDataPlane: false,
  readOnly: true,
  agents: true,
} as const;

/**
 * Queries each name server for the host that leads to the control plane, which may be the proxy's; updates the shadow and the event. A
 * failed check is a result.
 */
export function dnsHealth(checks: RegisteredChecks, resolvedName: () => string | undefined): OneShotTrigger<NoBody> {
  return {
    ...shared,
    event: "dns-health",
    async handle(_, { signal }): Promise<DnsHealthAnswer> {
      const [health, name] = [checks(), resolvedName()];
      if (health === undefined || name === undefined)
        throw new InputError("not-configured", "the node is not registered");
      await untilAborted(health.checkDns(), signal);
      const { dns } = health.results();
      if (dns === undefined) throw new InputError("not-configured", `${name} needs no name server`);
      const servers = dns.servers.map(({ server, answer }) => ({
        ip: server,
        success: answer === "ok",
        ...(answer === "ok" ? {} : { reason: answer }),
      }));
      const reason = servers.length === 0 ? { reason: "misconfigured" } : {};
      return { success: dns.isHealthy, name, ...reason, servers };
    },
  };
}

/** Checks the package repository, and updates the shadow and the event. A failed check is a result. */
export function repoConnectivity(
  checks: RegisteredChecks,
  repositoryUrl: () => string | undefined,
): OneShotTrigger<NoBody> {
  return {
    ...shared,
    event: "repo-connectivity",
    async handle(_, { signal }): Promise<RepoConnectivityAnswer> {
      const [health, url] = [checks(), repositoryUrl()];
      if (health === undefined) throw new InputError("not-configured", "the node is not registered");
      if (url === undefined) {
        throw new InputError("not-configured", "there is no repository: set repositoryUrl in the local settings");
      }
      await untilAborted(health.checkRepository(), signal);
      const { repository } = health.results();
      const isGood = repository === "ok";
      const { origin, pathname } = new URL(url);
      const reason = isGood ? {} : { reason: repository ?? "unknown" };
      return { repositories: [{ url: `${origin}${pathname}`, success: isGood, ...reason }] };
    },
  };
}
