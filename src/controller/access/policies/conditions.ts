import { z } from "zod";

export type Tags = Readonly<Record<string, string>>;

const KEY_PREFIX = "tg:node:tags:";
const MAX_KEYS = 32;
const MAX_VALUES = 64;

const Key = z.string().regex(/^tg:node:tags:[A-Za-z0-9_-]{1,128}$/, "must be tg:node:tags: and the name of a tag");
const Tests = z
  .record(Key, z.array(z.string().max(128)).max(MAX_VALUES))
  .refine((tests) => Object.keys(tests).length <= MAX_KEYS, `has more than ${MAX_KEYS} keys`)
  .nullish()
  .meta({ description: "Values by `tg:node:tags:<tag>`" });
const Section = z.strictObject({ eq: Tests, ne: Tests }).nullish();

/** Conditions of a policy on the tags of nodes and clusters; a section without entries passes. */
export const Conditions = z.strictObject({ all: Section, any: Section, none: Section }).meta({
  id: "PolicyConditions",
  examples: [{ all: { eq: { "tg:node:tags:site": ["berlin"] } } }],
  description:
    "`all`, at least one (`any`) or `none` of the entries hold: `eq`, the tag has one of the values; `ne`, it has not",
});
export type Conditions = z.infer<typeof Conditions>;

type Test = (tags: Tags) => boolean;

/** Returns whether conditions hold for tags; undefined if there is no entry, so that the policy is unconditional. Pure. */
export function testOf(conditions: Conditions | null | undefined): Test | undefined {
  const [all, any, none] = [conditions?.all, conditions?.any, conditions?.none].map(entriesOf);
  if (all === undefined || any === undefined || none === undefined) return undefined;
  if (all.length + any.length + none.length === 0) return undefined;
  return (tags) =>
    all.every((holds) => holds(tags)) &&
    (any.length === 0 || any.some((holds) => holds(tags))) &&
    !none.some((holds) => holds(tags));
}

function entriesOf(section: Conditions["all"]): readonly Test[] {
  const entry =
    (isEqual: boolean) =>
    ([key, list]: readonly [string, readonly string[]]): Test => {
      const tag = key.slice(KEY_PREFIX.length);
      const values = new Set(list);
      return (tags) => {
        const value = Object.hasOwn(tags, tag) ? tags[tag] : undefined;
        return (value !== undefined && values.has(value)) === isEqual;
      };
    };
  return [
    ...Object.entries(section?.eq ?? {}).map(entry(true)),
    ...Object.entries(section?.ne ?? {}).map(entry(false)),
  ];
}
