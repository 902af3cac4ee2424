package ir

import "strings"

// ExampleInput is an operand that examples of the op table name.
type ExampleInput struct{ Name, Type string }

// ExampleInputs lists what the examples of the op table read.
func ExampleInputs() []ExampleInput {
	return []ExampleInput{
		{"x", "f32[4,8]"}, {"b", "f32[8]"}, {"c", "bool[4,8]"}, {"w", "f32[8,16]"}, {"bias", "f32[16]"},
		{"i", "i64[3]"}, {"j", "i64[4,2]"}, {"rows", "f32[3,8]"}, {"flat", "f32[56]"}, {"experts", "f32[3,8,16]"}, {"ends", "i32[3]"}, {"counts", "i64[2]"},
		{"q", "bf16[2,4,16,8]"}, {"lse", "f32[2,4,16,1]"}, {"seed", "i64[]"}, {"image", "f32[2,4,5,6]"}, {"kernel", "f32[20,4,2,3]"}, {"halves", "f32[20,2,2,3]"}, {"g", "async f32[8,8]"},
	}
}

// ExampleFuncs is the text of the functions that examples of the op table name.
func ExampleFuncs() string {
	text := `
func @more(%k: i64[], %v: f32[4,8], %b: f32[8]) -> (bool[]) {
  %go = lt %k {scalar=3.0} : bool[]
  return %go
}

func @step(%k: i64[], %v: f32[4,8], %b: f32[8]) -> (i64[], f32[4,8]) {
  %next = add %k {scalar=1.0} : i64[]
  %sum = add %v, %b : f32[4,8]
  return %next, %sum
}
`
	for _, f := range [][2]string{{"plus", "add"}, {"times", "mul"}, {"minus", "sub"}} {
		text += "\nfunc @" + f[0] + "(%v: f32[4,8], %b: f32[8]) -> (f32[4,8]) {\n  %r = " + f[1] + " %v, %b : f32[4,8]\n  return %r\n}\n"
	}
	return text
}

// Example returns op's example as a module that verifies: a function whose inputs are
// what the example reads, and which returns what it gives. It fails only where the op
// table is wrong.
func Example(op Op) (*Module, error) {
	line := op.info().Example
	if line == "" {
		line = "return %x"
	}
	var inputs []string
	for _, in := range ExampleInputs() {
		if strings.Contains(line+",", "%"+in.Name+",") || strings.Contains(line, "%"+in.Name+" ") {
			inputs = append(inputs, "%"+in.Name+": "+in.Type)
		}
	}
	text := "world 4\ngroup @tp = [[0, 1], [2, 3]]\n"
	if op == OpReadSize {
		text += "sym u0 hint 2 max 4\nsym u1 hint 2 max 4\n"
	}
	text += "\nfunc @example(" + strings.Join(inputs, ", ") + ") -> ("
	if strings.HasPrefix(line, OpReturn.Name()) {
		return Parse(op.Name(), text+"f32[4,8]"+") {\n  "+line+"\n}\n")
	}
	text += ") {\n  " + line + "\n  return\n}\n"
	if op.info().Bodies != nil {
		text += ExampleFuncs()
	}
	m, err := Parse(op.Name(), text)
	if err != nil {
		return nil, err
	}
	f := m.funcs[0]
	r := f.Return()
	f.SetArgs(r, r.prev.results...)
	return m, nil
}
