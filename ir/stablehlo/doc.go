// Package stablehlo reads StableHLO programs in MLIR's textual form: parse.go and its
// neighbours read the text, import.go and its neighbours make functions of package ir of it.
//
// The text is that of the dialects stablehlo, chlo, func, sdy, check and interpreter, in
// generic form and in the forms that they print. The parser is loose: it takes an
// operation's operands, attributes, regions and types in any order that the forms allow,
// and the importer says what an operation lacks. Both are linear in what they read; nesting
// and what inlining makes are bounded.
package stablehlo
