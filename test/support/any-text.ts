import fc from "fast-check";

/** Any code point, surrogates included. The unit "binary" of fast-check is the same, and takes two seconds to make. */
const codePoints = fc.integer({ min: 0, max: 0x10_ff_ff }).map((point) => String.fromCodePoint(point));

/** Text of any code points. */
export const anyText = (maxLength?: number): fc.Arbitrary<string> =>
  fc.string({ unit: codePoints, ...(maxLength === undefined ? {} : { maxLength }) });
