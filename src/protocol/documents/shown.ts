/** Replacement for secrets in text that leaves the machine. */
export const LEFT_OUT = "[left out]";

interface Fields {
  /** Fields whose values may leave the machine. */
  readonly shown: string;
  /** Fields that hold a secret, or a text in which people write one. */
  readonly hidden: string;
}

/**
 * Every field of the settings file, and of each section that has a schema, by its name: a new field needs a decision here whether it may leave
 * the machine, and until then it does not.
 */
export const FIELDS: Readonly<Record<string, Fields>> = {
  settings: {
    shown:
      "logLevel proxy noProxy hosts unit speedTestUrl repositoryUrl engineSocket containers allowPrivileged allowBinds allowCapabilities events " +
      "services allowOwnAddresses dataStore maxBytes reservePercent maxTransfers maxBandwidth value maxRequests allowAddresses proxyNames s3 bucket endpoint region pathStyle " +
      "credentials metrics listen allowRemote upgrade manifest profile",
    // A whole section; its own rules apply where the node reports it.
    hidden: "network",
  },
  connectors: {
    shown:
      "connectors description enabled id idleTimeout index items localIp maxConnections maxmbps nic node port protocol requires service " +
      "sourceBlock version",
    hidden: "",
  },
  services: {
    shown:
      "connectTimeout description enabled failures healthCheck host id idleTimeout index interval items name port protocol requires services " +
      "sourceFromClusterIP sourceInterface successes version",
    hidden: "",
  },
  gateway: {
    shown:
      "acls cert clients connectToPublic critical default dest enabled host id latencyMonitorMode latencyMonitors local " +
      "maxClientWriteMbps maxLatency maxmbps metric monitorGateway monitorHops monitorHopsIcmpPayload monitorHopsInterval monitorHopsMode " +
      "monitorHopsOverrides monitorHopsProtocol monitorHopsSynPayload name node path paths port protocol recoverCount " +
      "requestClientsMonitorHops requires route routes source triggerCount type udpEnabled udpPort",
    hidden: "mesh",
  },
  network: {
    shown:
      "acls action addIps auto bridgeCIDR cloudRoutes clusterIP clusterRouteTables clusterRoutes darkMode description dest destination dev " +
      "dhcp dhcpPool dmac dnat dns dpdInterval dpdRetries duplex enabled forwarding gateway iface ignoreHealthCheck ike ikeCipher ikeGroup " +
      "in interfaces ip ipsecCipher line localId localSubnet masquerade metric mode mtu name nats networkId next nic pfs ports protocol " +
      "publicKey rekeyInterval remoteId remoteSubnet replayWindow requires route routes rules snat source speed subInterfaces subnet toDest " +
      "toSource tunnels type uid via virtual vlanID vrf vrfs",
    hidden: "psk presharedKey",
  },
  cluster: {
    shown: "enabled host master masterVersion port statusHost statusPort updateTime versionCounter",
    hidden: "shared",
  },
  alert: {
    shown: "enabled exceededWindow exceededWindowUnit id max name requires target telemetry thresholds",
    hidden: "command",
  },
  snmp: {
    shown: "authProtocol enabled engineId interface port privacyProtocol username",
    hidden: "authPassphrase privacyPassphrase",
  },
  apigw: {
    shown: "cert enabled host port wireguardEnabled wireguardEndpoint wireguardPort",
    hidden: "",
  },
  exec: {
    shown:
      "addCaps allowOutbound capabilities commands containerPort cpuMax description dest dns dropCaps enabled encrypted execType hard " +
      "healthCheck hostPort hostname id iface image interfaces interval ioRbps ioRiops ioWbps ioWiops ip limits location logging maxFileSize " +
      "maxLogFileSize memHigh memMax mountType mounts name network numFiles portMappings privileged protocol repository " +
      "requireConnectivity requires retries saveOutput schedule soft source startPeriod stopTime tag timeout type uid useInit user " +
      "variables virtualNetworks volumes vrf",
    // A command line often has a password in it.
    hidden: "value command",
  },
  document: {
    shown:
      "uid name fqdn domain org type state restricted code address lifecycleState cluster tags settings speedTestUrl registry host namespace confirm requires members",
    hidden: "",
  },
};

/** A value that may leave the machine, and the texts that were omitted from it. */
export interface Shown {
  readonly shown: unknown;
  readonly leftOut: readonly string[];
}

/** Returns the fields of a section that may be shown; of a section without a schema only the names of its fields. Pure. */
export function shownValue(kind: string, value: unknown): Shown {
  const fields = Object.hasOwn(FIELDS, kind) ? FIELDS[kind] : undefined;
  const leftOut: string[] = [];
  const known = new Set(fields?.shown.split(" ") ?? []);
  const shown = walk(value, known, leftOut, false);
  return { shown, leftOut };
}

/** Fields whose members have arbitrary names, such as ids of items, tags and hosts. */
const BY_NAME: ReadonlySet<string> = new Set(["items", "tags", "hosts"]);

function walk(value: unknown, known: ReadonlySet<string>, leftOut: string[], isByName: boolean): unknown {
  if (typeof value === "string") return withoutPassword(value, leftOut);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => walk(item, known, leftOut, false));
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]: [string, unknown]) => {
      if (isByName || known.has(name)) return [name, walk(inner, known, leftOut, BY_NAME.has(name) && !isByName)];
      textsIn(inner, leftOut);
      return [name, LEFT_OUT];
    }),
  );
}

/** Returns an address without user, password and query, which may contain secrets. */
function withoutPassword(text: string, leftOut: string[]): string {
  if (!text.includes("://")) return text;
  const url = URL.parse(text);
  if (url === null) {
    leftOut.push(text);
    return LEFT_OUT;
  }
  const parts = [url.username, url.password, url.search.slice(1), ...url.searchParams.values()].filter(
    (part) => part !== "",
  );
  leftOut.push(...parts.flatMap((part) => [part, decoded(part)]));
  return parts.length === 0 ? text : `${url.protocol}//${url.host}${url.pathname}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function textsIn(value: unknown, found: string[]): void {
  if (typeof value === "string") found.push(value);
  else if (typeof value === "object" && value !== null) for (const inner of Object.values(value)) textsIn(inner, found);
}
