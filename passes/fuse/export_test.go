package fuse

import "github.com/seed-ee968945/concert/passes/internal/deps"

// LaunchModel is launchModel.
var LaunchModel = launchModel

// RegionsPeak is the largest live memory of an order whose nodes belong to regions.
func RegionsPeak(d *deps.Func, order, unit []int32) int64 { return newUnitMemory(d).peak(order, unit) }
