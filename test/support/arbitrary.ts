import fc from "fast-check";
import { z } from "zod";

interface Bounds {
  min: number | undefined;
  max: number | undefined;
  isInteger: boolean;
  patterns: RegExp[];
  format: string | undefined;
  isRefined: boolean;
}

/** Valid input values of a schema as JSON, derived from the schema itself. */
export function validValues(schema: z.core.$ZodType): fc.Arbitrary<unknown> {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case "object": {
      const shape: Record<string, z.core.$ZodType> = def.shape;
      const all = Object.keys(shape);
      const required = all.filter((key) => shape[key]?._zod.optin !== "optional");
      if (all.length === 0 && def.catchall !== undefined) {
        return fc.dictionary(keys(z.string()), validValues(def.catchall), { maxKeys: 4 });
      }
      const model = Object.fromEntries(all.map((key) => [key, validValues(innermost(shape[key] ?? z.unknown()))]));
      return fc.record(model, { requiredKeys: required });
    }
    case "record":
      return fc.dictionary(keys(def.keyType), validValues(def.valueType), { maxKeys: 4 });
    case "array": {
      const { min, max } = boundsOf(schema);
      return fc.array(validValues(def.element), { minLength: min ?? 0, maxLength: Math.min(max ?? 4, (min ?? 0) + 4) });
    }
    case "string":
      return strings(schema);
    case "number":
      return numbers(boundsOf(schema)).filter((value) => z.safeParse(schema, value).success);
    case "boolean":
      return fc.boolean();
    case "enum":
      return fc.constantFrom(...Object.values(def.entries));
    case "literal":
      return fc.constantFrom(...def.values);
    case "union":
      return fc.oneof(...def.options.map((option) => validValues(option)));
    case "optional":
    case "nonoptional":
      return validValues(def.innerType);
    case "nullable":
      return fc.oneof(fc.constant(null), validValues(def.innerType));
    case "default":
      return validValues(def.innerType);
    case "pipe":
      // The transform of `z.preprocess` has no form of its own.
      return validValues(def.in._zod.def.type === "transform" ? def.out : def.in).filter(
        (value) => z.safeParse(schema, value).success,
      );
    case "unknown":
      return jsonValues;
    default:
      throw new Error(`no arbitrary for the schema type ${def.type}`);
  }
}

/** Any JSON value that passes the checks before the schemas. */
const jsonValues: fc.Arbitrary<unknown> = fc
  .jsonValue({ maxDepth: 3 })
  .filter((value) => !/__proto__|constructor|prototype|-0/.test(JSON.stringify(value)))
  .map((value) => JSON.parse(JSON.stringify(value)) as unknown);

const NAMES: fc.Arbitrary<string> = fc.oneof(fc.domain(), fc.ipV4(), fc.ipV6());

function keys(schema: z.core.$ZodType): fc.Arbitrary<string> {
  return validValues(schema).filter(
    (key): key is string => typeof key === "string" && !/^(?:__proto__|constructor|prototype)$/.test(key),
  );
}

function strings(schema: z.core.$ZodType): fc.Arbitrary<string> {
  const { min, max, patterns, format, isRefined } = boundsOf(schema);
  const [pattern] = patterns;
  const source = (): fc.Arbitrary<string> => {
    if (format === "uuid") return fc.uuid();
    if (pattern !== undefined) return fc.stringMatching(withoutLookahead(pattern));
    if (isRefined) return NAMES;
    return graphemes(min ?? 0, Math.min(max ?? 64, 64));
  };
  return source().filter((text) => z.safeParse(schema, text).success);
}

const graphemesByLength = new Map<string, fc.Arbitrary<string>>();

/** Strings of graphemes; making such an arbitrary takes 10 ms. */
function graphemes(minLength: number, maxLength: number): fc.Arbitrary<string> {
  const key = `${minLength} ${maxLength}`;
  const made = graphemesByLength.get(key) ?? fc.string({ unit: "grapheme", minLength, maxLength });
  graphemesByLength.set(key, made);
  return made;
}

/** Removes lookaheads; the filter afterwards applies them. */
const withoutLookahead = ({ source }: RegExp): RegExp => new RegExp(source.replaceAll(/\(\?![^()]*\)/g, ""));

function numbers({ min, max, isInteger }: Bounds): fc.Arbitrary<number> {
  if (!isInteger) return fc.double({ min: min ?? -1e15, max: max ?? 1e15, noNaN: true }).map((value) => value + 0);
  const low = Math.max(min ?? Number.MIN_SAFE_INTEGER, Number.MIN_SAFE_INTEGER);
  return fc.integer({ min: low, max: Math.min(max ?? Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER) });
}

function innermost(schema: z.core.$ZodType): z.core.$ZodType {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  return def.type === "optional" ? innermost(def.innerType) : schema;
}

function boundsOf(schema: z.core.$ZodType): Bounds {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  const bounds: Bounds = {
    min: undefined,
    max: undefined,
    isInteger: false,
    patterns: [],
    format: undefined,
    isRefined: false,
  };
  const own = "check" in def ? [def as z.core.$ZodCheckDef] : [];
  const checks = ("checks" in def ? (def.checks ?? []) : []).map((check) => check._zod.def);
  for (const check of [...own, ...checks] as z.core.$ZodChecks["_zod"]["def"][]) {
    switch (check.check) {
      case "min_length":
        bounds.min = Math.max(bounds.min ?? 0, check.minimum);
        break;
      case "max_length":
        bounds.max = Math.min(bounds.max ?? Infinity, check.maximum);
        break;
      case "greater_than":
        bounds.min = Math.max(bounds.min ?? -Infinity, Number(check.value));
        break;
      case "less_than":
        bounds.max = Math.min(bounds.max ?? Infinity, Number(check.value));
        break;
      case "number_format":
        bounds.isInteger = check.format !== "float64" && check.format !== "float32";
        break;
      case "string_format":
        if (check.format === "uuid") bounds.format = "uuid";
        if (check.pattern !== undefined) bounds.patterns.push(check.pattern);
        break;
      default:
        bounds.isRefined ||= (check as { check: string }).check === "custom";
    }
  }
  return bounds;
}

/** A value next to a valid one: `value` differs from it at `path`. */
export interface Mutant {
  readonly path: readonly string[];
  readonly value: unknown;
}

const HOSTILE: readonly unknown[] = [
  null,
  true,
  -1,
  0.5,
  1e308,
  Number.MAX_SAFE_INTEGER + 1,
  "",
  " ",
  "\0",
  "\uD800",
  "-rf",
  "../../etc/passwd",
  "a\nb",
  "a".repeat(20_000),
  `${"a".repeat(20_000)}!`,
  [],
  {},
  [[]],
  [null],
  { a: { b: { c: [] } } },
  Object.fromEntries([["x".repeat(5000), 1]]),
];

/** Near-valid values: somewhere in a valid one a field is dropped, or replaced by something of another type, range or size. */
export function nearValidValues(schema: z.core.$ZodType): fc.Arbitrary<Mutant> {
  return fc
    .tuple(validValues(schema), fc.nat(), fc.constantFrom(undefined, ...HOSTILE))
    .map(([value, at, hostile]) => mutate(value, at, hostile));
}

/** Adds an unknown field to every object that a schema names the fields of. */
export function withUnknownFields(schema: z.core.$ZodType, value: unknown): unknown {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  if (def.type === "optional") return withUnknownFields(def.innerType, value);
  if (def.type === "array" && Array.isArray(value)) return value.map((item) => withUnknownFields(def.element, item));
  if (typeof value !== "object" || value === null) return value;
  if (def.type === "union") {
    const fitting = def.options.find((option) => z.safeParse(option, value).success);
    return fitting === undefined ? value : withUnknownFields(fitting, value);
  }
  // An object that accepts any field has no unknown ones.
  if (def.type !== "object" || def.catchall !== undefined) return value;
  const shape: Record<string, z.core.$ZodType> = def.shape;
  const entries = Object.entries(value).map(([key, inner]: [string, unknown]) => [
    key,
    shape[key] === undefined ? inner : withUnknownFields(shape[key], inner),
  ]);
  return { ...Object.fromEntries(entries), "x-unknown": { deep: [1] } };
}

function mutate(value: unknown, at: number, hostile: unknown): Mutant {
  const paths = pathsOf(value, []);
  const path = paths[at % paths.length] ?? [];
  return { path, value: replaced(value, path, hostile) };
}

function pathsOf(value: unknown, path: readonly string[]): (readonly string[])[] {
  if (typeof value !== "object" || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, inner]) => pathsOf(inner, [...path, key]))];
}

function replaced(value: unknown, [key, ...rest]: readonly string[], by: unknown): unknown {
  if (key === undefined) return by;
  if (Array.isArray(value)) {
    return value.map((item: unknown, i) => (String(i) === key ? replaced(item, rest, by) : item));
  }
  const entries = Object.entries(value as object).map(([name, inner]: [string, unknown]) => [
    name,
    name === key ? replaced(inner, rest, by) : inner,
  ]);
  return Object.fromEntries(entries.filter(([, inner]) => inner !== undefined));
}
