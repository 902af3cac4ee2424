package pack

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestCSVRoundTrip(t *testing.T) {
	in := "size,name,id,upper,lower,alignment\n8,x y,b1,3,0,\n4,\"a,b\",b2,9,3,4\n"
	tab, err := ReadCSV(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	want := []Buffer{{Lower: 0, Upper: 3, Size: 8}, {Lower: 3, Upper: 9, Size: 4, Align: 4}}
	if !reflect.DeepEqual(tab.Problem.Buffers, want) || !reflect.DeepEqual(tab.IDs, []string{"b1", "b2"}) {
		t.Errorf("read %+v %q", tab.Problem.Buffers, tab.IDs)
	}
	var out bytes.Buffer
	if err := tab.WriteCSV(&out, []int64{0, 12}); err != nil {
		t.Fatal(err)
	}
	wantOut := "size,name,id,upper,lower,alignment,offset\n8,x y,b1,3,0,,0\n4,\"a,b\",b2,9,3,4,12\n"
	if out.String() != wantOut {
		t.Errorf("wrote %q, want %q", out.String(), wantOut)
	}
	// The output is an input, and its offset column is replaced.
	again, err := ReadCSV(&out)
	if err != nil {
		t.Fatal(err)
	}
	var out2 bytes.Buffer
	if err := again.WriteCSV(&out2, []int64{0, 12}); err != nil || out2.String() != wantOut {
		t.Errorf("second round wrote %q, %v", out2.String(), err)
	}
	if err := again.WriteCSV(&out2, []int64{0}); err == nil {
		t.Error("too few offsets were accepted")
	}
}

func TestCSVInclusive(t *testing.T) {
	tab, err := ReadCSV(strings.NewReader("id,begin,end,size\na,2,4,8\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Buffer{Lower: 2, Upper: 5, Size: 8}); tab.Problem.Buffers[0] != want {
		t.Errorf("read %+v, want %+v", tab.Problem.Buffers[0], want)
	}
}

func TestCSVErrors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "csv: no header"},
		{"id,lower,upper\n", `csv row 1: the header "id,lower,upper" lacks column size`},
		{"id,upper,size\n", "lacks exactly one of the columns lower and begin"},
		{"id,lower,begin,upper,size\n", "lacks exactly one of the columns lower and begin"},
		{"id,lower,upper,size,size\n", "csv row 1, column size: the column appears twice"},
		{"id,lower,upper,size\na,1,2\n", "csv row 2: wrong number of fields"},
		{"id,lower,upper,size\na,1,2,3\n\nb,1,x,3\n", `csv row 4, column upper: "x" is not a 64-bit integer: invalid syntax`},
		{"id,lower,upper,size\na,1,2,99999999999999999999\n", "value out of range"},
		{"id,lower,upper,size\na,1,2,3\na,1,2,3\n", `csv row 3, column id: id "a" is already used in row 2`},
		{"id,lower,upper,size\na,1,2,3\nb,3,2,3\n", "csv row 3: lifetime [3,2) ends before it starts"},
		{"id,lower,upper,size\na,1,2,-3\n", "csv row 2: size -3 is negative"},
		{"id,lower,upper,size,gaps\na,1,2,3,1-2:4\n", "csv row 2, column gaps: not supported"},
		{"id,begin,end,size\na,1,9223372036854775807,3\n", "column end: an inclusive end must be below"},
		{"id,lower,upper,size\na,1,2,\"3\n", "csv row"},
		{"id,lower,upper,size\na,1,2,50000000000000000\nb,1,2,50000000000000000\n", "csv row 3: sizes and alignments up to here exceed"},
	} {
		_, err := ReadCSV(strings.NewReader(c.in))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ReadCSV(%q) = %v, want %q", c.in, err, c.want)
			continue
		}
		var ce *CSVError
		if !errors.As(err, &ce) {
			t.Errorf("ReadCSV(%q) gives %T", c.in, err)
		}
	}
}

func FuzzReadCSV(f *testing.F) {
	f.Add("id,lower,upper,size\na,0,3,4\nb,2,5,4\n")
	f.Add("size,id,begin,end,alignment,offset\n4,a,0,3,2,0\n")
	f.Add("id,lower,upper,size\n\"a\",-1,9223372036854775807,0\n")
	f.Fuzz(func(t *testing.T, in string) {
		tab, err := ReadCSV(strings.NewReader(in))
		if err != nil {
			if err.Error() == "" {
				t.Error("empty error")
			}
			return
		}
		if err := tab.Problem.Check(); err != nil {
			t.Fatalf("accepted a malformed problem: %v", err)
		}
		if len(tab.Problem.Buffers) > 1000 {
			return
		}
		offsets, h, err := BestFit(tab.Problem)
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(tab.Problem, offsets, h); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := tab.WriteCSV(&out, offsets); err != nil {
			t.Fatal(err)
		}
		again, err := ReadCSV(&out)
		if err != nil {
			t.Fatalf("own output rejected: %v\n%s", err, out.String())
		}
		if !reflect.DeepEqual(again.Problem.Buffers, tab.Problem.Buffers) {
			t.Errorf("round trip changed the problem")
		}
	})
}
