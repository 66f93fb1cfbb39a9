import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { dialRequestFor, type Dialler } from "../../host/net/dial.ts";
import type { Reader } from "../../host/reader.ts";
import { askServer, readNameServers } from "../../host/net/resolver.ts";
import { isSshLocal } from "../../host/network/ip/sockets.ts";
import { setAddresses } from "../../host/net/system-resolve.ts";
import { proxyFor } from "../../lib/net/proxy.ts";
import { manifestAddress } from "../../protocol/documents/release.ts";
import type { AgentSettings } from "../settings.ts";
import type { EventLog } from "../telemetry/events.ts";
import { startHealthChecks, type HealthChecks } from "../telemetry/conditions/health-checks.ts";
import { checkRepository } from "../telemetry/conditions/repository-check.ts";

export interface WatchHealthOptions {
  readonly clock: Clock;
  readonly reader: Reader;
  readonly log: Logger;
  readonly events: EventLog;
  /** The address of the control plane's session. */
  readonly sessionUrl: string;
  readonly settings: Pick<AgentSettings, "proxies" | "hosts">;
  readonly dialler: Dialler;
  /** The HTTP address of the releases; no repository is checked when undefined. */
  readonly repositoryUrl: string | undefined;
  /** Public keys of the control plane that are trusted without a valid certificate. */
  readonly pins: () => readonly string[];
  readonly onResults: () => void;
}

/** Checks regularly what a registered node depends on: name servers, the package repository, and that SSH listens on loopback only. */
export function watchHealth(options: WatchHealthOptions): HealthChecks {
  const { clock, reader, log, events, sessionUrl, settings, dialler, repositoryUrl, pins, onResults } = options;
  const url = repositoryUrl === undefined ? undefined : new URL(repositoryUrl);
  return startHealthChecks({
    clock,
    events,
    name: resolvedHost(sessionUrl, settings),
    servers: () => readNameServers(reader),
    ask: askServer,
    isSshLocal: () => isSshLocal(reader),
    repository: url === undefined ? undefined : (signal) => checkRepository({ url, pins: pins(), dialler }, signal),
    onResults,
    onError: (error) => log.warn({ err: toError(error) }, "health check failed"),
  });
}

/**
 * Returns the host whose name this machine resolves to reach an address. Behind a proxy it is the proxy's name, and the proxy resolves the
 * other. An address that is set by hand replaces the name, since nothing is resolved then.
 */
export function resolvedHost(
  address: string,
  { proxies, hosts = {} }: Pick<AgentSettings, "proxies" | "hosts">,
): string {
  const { host, port, tls } = dialRequestFor(new URL(address), [], 0);
  const proxy = proxyFor(proxies, host, port, tls !== undefined);
  const name = proxy === undefined ? host : proxy.hostname.replace(/^\[|\]$/g, "");
  return setAddresses(hosts, name)?.[0] ?? name;
}

/** Returns the HTTP address of the package repository; undefined if there is none. */
export function repositoryUrlOf(
  registration: { readonly controlPlane: { readonly iss: string } } | undefined,
  { repositoryUrl, upgrade }: Pick<AgentSettings, "repositoryUrl" | "upgrade">,
): string | undefined {
  if (repositoryUrl !== undefined || registration === undefined) return repositoryUrl;
  return repositoryOf(upgrade.manifest, registration.controlPlane.iss);
}

/** Returns the address of the release manifest; undefined if it is a file of this machine. */
export function repositoryOf(manifest: string | undefined, controlPlane: string): string | undefined {
  const address = manifestAddress(undefined, manifest, controlPlane);
  return address?.startsWith("http") === true ? address : undefined;
}
