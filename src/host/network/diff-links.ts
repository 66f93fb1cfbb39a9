import type { Change } from "./change.ts";
import { addLinkLines, deleteLinkLine, setLinkLine, type LinkSetting } from "./ip/lines.ts";
import type { LinkState, LinkTarget, NetworkState, NetworkTarget } from "./state/state.ts";
import { defined } from "../../lib/defined.ts";

/** What becomes of the links, and what that does to what they carry. */
export interface LinkPlan {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  readonly ethtool: readonly Change[];
  /** Links made anew under their old name: nothing of what they carried is left. */
  readonly renewed: ReadonlySet<string>;
  /** Links that are taken away. */
  readonly gone: ReadonlySet<string>;
  /** Links that lose all their routes: they are switched off, or get another master. */
  readonly flushed: ReadonlySet<string>;
  /** Whether the link is there in the end. */
  has(link: string): boolean;
  /** Whether it is there and switched on. */
  isUp(link: string): boolean;
  /** Whether the sysctl is of a link that is only made. */
  makes(sysctl: string): boolean;
}

/** Makes and sets what is wanted; what is ours and not wanted goes last, a link on another before that. */
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
  // A VRF is there before its members, and a parent is on before what stands on it.
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
    // What is switched off takes its routes along, so it waits until others are in their place.
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

/** What of a link has to be set; a stranger's bridge or bond keeps its members. */
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
