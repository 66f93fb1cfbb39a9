import type { Change } from "./change.ts";
import { addLinkLines, deleteLinkLine, setLinkLine, type LinkSetting } from "./ip/lines.ts";
import type { LinkState, LinkTarget, NetworkState, NetworkTarget } from "./state/state.ts";
import { defined } from "../../lib/defined.ts";

/** The changes of the links and their effect on addresses and routes. */
export interface LinkPlan {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  readonly ethtool: readonly Change[];
  /** Links recreated under their old name; all their addresses and routes are lost. */
  readonly renewed: ReadonlySet<string>;
  /** Removed links. */
  readonly gone: ReadonlySet<string>;
  /** Links that lose all their routes because they are switched off or change their master. */
  readonly flushed: ReadonlySet<string>;
  /** Reports whether the link exists after the changes. */
  has(link: string): boolean;
  /** Reports whether it exists and is up. */
  isUp(link: string): boolean;
  /** Reports whether the sysctl belongs to a link that is created. */
  makes(sysctl: string): boolean;
}

/** Plans the links: creates and sets the desired ones, and last removes ours that are not desired, dependent links first. */
export function diffLinks(state: NetworkState, target: NetworkTarget): LinkPlan {
  const known = new Map(state.links.map((link) => [link.name, link]));
  const wanted = new Map(target.links.map((link) => [link.name, link]));
  const leaving = state.links.filter(({ name, isOurs }) => isOurs && wanted.get(name)?.kind === undefined);
  const gone = new Set(leaving.map(({ name }) => name));
  const made = target.links.filter((link) => {
    const found = known.get(link.name);
    return link.kind !== undefined && (found === undefined || (found.isOurs && !isSameLink(found, link)));
  });
  const isMade = new Set(
    made.filter(({ parent }) => parent === undefined || known.has(parent)).map(({ name }) => name),
  );
  const renewed = new Set([...isMade].filter((name) => known.has(name)));
  const has = (name: string): boolean => isMade.has(name) || (known.has(name) && !gone.has(name));
  const settings = [...wanted.values()].flatMap((link) => {
    const found = isMade.has(link.name) ? undefined : known.get(link.name);
    return has(link.name) && !gone.has(link.name) ? [{ link, found, set: settingOf(link, found, known) }] : [];
  });
  const flushed = settings.filter(
    ({ found, set }) => found !== undefined && (set.master !== undefined || set.isUp === false),
  );
  const up = new Map(settings.map(({ link }) => [link.name, link.isUp]));
  // A VRF exists before its members, and a parent is up before its dependent links.
  const inOrder = made.filter(({ name }) => isMade.has(name)).toSorted((a, b) => rank(a) - rank(b));
  return {
    added: [
      ...inOrder.flatMap((link) =>
        (renewed.has(link.name) ? [deleteLinkLine(link.name)] : []).concat(addLinkLines(link)),
      ),
      ...settings
        .toSorted((a, b) => rank(a.link) - rank(b.link))
        .flatMap(({ set: { isUp, ...others } }) => setLinkLine(isUp === true ? { ...others, isUp } : others) ?? []),
    ],
    // Switching a link off drops its routes, so it waits until replacements are in place.
    removed: [
      ...settings.flatMap(({ set }) =>
        set.isUp === false ? (setLinkLine({ name: set.name, isUp: false }) ?? []) : [],
      ),
      ...leaving.toSorted((a, b) => rank(b) - rank(a)).map(({ name }) => deleteLinkLine(name)),
    ],
    ethtool: settings.flatMap(({ link, found }) => ethtoolChange(link, found)),
    renewed,
    gone,
    flushed: new Set(flushed.map(({ link }) => link.name)),
    has,
    isUp: (name) => has(name) && (up.get(name) ?? known.get(name)?.isUp ?? false),
    makes: (sysctl) => [...isMade].some((name) => sysctl.split(".").includes(name.replaceAll(".", "/"))),
  };
}

const rank = ({ kind, parent }: Pick<LinkState, "kind" | "parent">): number =>
  kind === "vrf" ? 0 : parent === undefined ? 1 : 2;

function isSameLink(found: LinkState, link: LinkTarget): boolean {
  return (
    found.kind === link.kind &&
    (link.kind !== "vlan" || (found.parent === link.parent && found.vlanId === link.vlanId)) &&
    (link.kind !== "vrf" || found.table === link.table)
  );
}

/** Returns the settings to change; a foreign bridge or bond keeps its members. */
function settingOf(link: LinkTarget, found: LinkState | undefined, known: ReadonlyMap<string, LinkState>): LinkSetting {
  const { name, mtu, master, isUp } = link;
  const isOurMaster = found?.master !== undefined && known.get(found.master)?.kind === "vrf";
  return {
    name,
    ...(mtu === undefined || mtu === found?.mtu || (found === undefined && link.kind !== undefined) ? {} : { mtu }),
    ...(master === undefined ? (isOurMaster ? { master: null } : {}) : master === found?.master ? {} : { master }),
    ...(isUp === (found?.isUp ?? false) ? {} : { isUp }),
  };
}

function ethtoolChange({ name, kind, fixed }: LinkTarget, found: LinkState | undefined): readonly Change[] {
  if (kind !== undefined || found === undefined) return [];
  const isSame = fixed?.speedMbps === found.fixed?.speedMbps && fixed?.duplex === found.fixed?.duplex;
  return isSame ? [] : [{ kind: "ethtool", link: name, ...defined({ fixed }) }];
}
