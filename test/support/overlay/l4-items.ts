import type { OverlayListener, OverlayService } from "../../../src/protocol/overlay/overlay.ts";
import type { Connector } from "../../../src/protocol/sections/connectors/connectors.ts";
import type { Service } from "../../../src/protocol/sections/services/services.ts";

/** A connector of the configuration, to 127.0.0.1:9000 by default. */
export function aConnector(id: string, more: Partial<Connector> = {}): Connector {
  return {
    id,
    path: `connectors.items.${id}`,
    index: 0,
    enabled: true,
    node: "local",
    target: { service: "web" },
    protocol: "tcp",
    transport: "tcp",
    port: 8080,
    listen: { at: "any" },
    maxFlows: 10_000,
    idleTimeoutMs: 900_000,
    description: "",
    ...more,
  };
}

/** The overlay's listener of `aConnector` with its defaults. */
export function itsListener(connector: string, more: Partial<OverlayListener> = {}): OverlayListener {
  return {
    key: "tcp/any/8080",
    connector,
    protocol: "tcp",
    addresses: ["0.0.0.0"],
    port: 8080,
    target: { service: "web" },
    maxFlows: 10_000,
    idleTimeoutMs: 900_000,
    ...more,
  };
}

/** A service of the configuration on 127.0.0.1:9000, by default. */
export function aConfigService(id: string, more: Partial<Service> = {}): Service {
  return {
    id,
    path: `services.items.${id}`,
    index: 0,
    enabled: true,
    name: "web",
    protocol: "tcp",
    transport: "tcp",
    host: "127.0.0.1",
    port: 9000,
    sourceFromClusterIP: false,
    connectTimeoutMs: 5000,
    idleTimeoutMs: 900_000,
    description: "",
    ...more,
  };
}

/** The overlay's entry of `aConfigService` with its defaults. */
export function itsEntry(more: Partial<OverlayService> = {}): OverlayService {
  return {
    name: "web",
    protocol: "tcp",
    host: "127.0.0.1",
    port: 9000,
    connectTimeoutMs: 5000,
    idleTimeoutMs: 900_000,
    ...more,
  };
}
