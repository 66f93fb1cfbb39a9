import type { OverlayFlow, Place } from "./overlay.ts";

/** What a record and a list of flows say of a flow beyond its addresses. Pure. */
export function flowMeta({ id, connector, service, backend, origin, reason }: OverlayFlow): Record<string, string> {
  return {
    ...(id === undefined ? {} : { flow: id }),
    ...(connector === "" ? {} : { connector }),
    service,
    ...(backend === undefined ? {} : { backend: placeText(backend) }),
    ...(origin === undefined ? {} : { origin: placeText(origin) }),
    ...(reason === undefined ? {} : { reason }),
  };
}

function placeText({ ip, port }: Place): string {
  return ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
}
